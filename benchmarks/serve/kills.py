"""SIGKILL at random moments under load: nothing acknowledged is lost and nothing is learned twice.

The state is that of an independent replay, bit for bit: the rows of the log through the session of `natkal learn`.
"""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.serve.client import NAMES, Client, Server, table
from natkal.runs import checkpoint
from natkal.runs.folder import take_over
from natkal.runs.session import Session
from natkal.runs.snapshot import snapshot
from natkal.serve.versions import Versions
from natkal.tables.schema.rows import Position, Rows

WRITERS = 3
LONGEST_LIFE = 2.0
"""Seconds of load before a kill, at most."""
KEPT = ("counts", "reasons", "metrics", "learner", "vocabularies", "held", "sequences")


def run(folder: Path, kills: int, durability: str, report: Callable[[str], None]) -> dict[str, Any]:
    """Kill and start again so often; then compare."""
    rng = np.random.default_rng(0)
    options = ("--durability", durability, "--checkpoint-every", "0.7", "--keep", "1000000")
    run_folder, stream = folder / "run", Stream()
    for number in range(kills):
        server = Server(run_folder, *options)
        writers = [threading.Thread(target=stream.write, args=(server.port,)) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        time.sleep(float(rng.uniform(0.05, LONGEST_LIFE)))
        server.kill()
        for writer in writers:
            writer.join()
        report(f"serve: kill {number + 1} of {kills}, {len(stream.acknowledged):,} rows acknowledged so far")
    server = Server(run_folder, *options)
    code = server.end()
    versions = Versions(run_folder, 1_000_000)
    learned = [row for record in versions.records_after(1, 0) for row in _rows(record.body)]
    marks = [int(row["x9"]) for row in learned]
    equal, what = replay_equal(versions, run_folder, learned)
    lost, twice = len(stream.acknowledged - set(marks)), len(marks) - len(set(marks))
    return {
        "kills": kills,
        "acknowledged": len(stream.acknowledged),
        "lost": lost,
        "learned_twice": twice,
        "bit_equal": equal,
        "differs": what,
        "exit": code,
        "passed": not lost and not twice and equal and code == 0,
    }


class Stream:
    """Rows that can be told apart: x9 counts them."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self._lock = threading.Lock()
        self._next = 0
        self._rows = table(1000, seed=1)

    def write(self, port: int) -> None:
        """Learn rows until the server is gone: one at a time, or a few."""
        try:
            client = Client(port)
            while True:
                with self._lock:
                    numbers = list(range(self._next, self._next + (1 if self._next % 7 else 5)))
                    self._next += len(numbers)
                rows = [self._rows[number % 1000] | {"x9": number} for number in numbers]
                status, _ = client.post("/learn" if numbers[0] % 2 else "/predict_learn", rows)
                assert status == 200, status
                with self._lock:
                    self.acknowledged.update(numbers)
        except OSError:
            pass


def _rows(body: bytes) -> list[dict[str, Any]]:
    found = json.loads(body)
    return [found] if isinstance(found, dict) else found


def replay_equal(versions: Versions, run_folder: Path, learned: list[dict[str, Any]]) -> tuple[bool, str]:
    """Whether the last checkpoint is what the rows teach a session of `natkal learn` that starts at the first one."""
    first_header, first_arrays = versions.read(1)
    last_header, last_arrays = checkpoint.read(run_folder / checkpoint.CURRENT)
    with jax.enable_x64(True):
        session = Session.restored(versions.path(1), first_header, first_arrays, run_folder.parent / "replay", None)
        session.kept = None
        take_over(session)
        for first in range(0, len(learned), 1000):
            session.take(as_rows(learned[first : first + 1000]))
        session.save()
        header, arrays = snapshot(session)
    for name in KEPT:
        if header[name] != json.loads(json.dumps(last_header[name])):
            return False, name
    for name, value in arrays.items():
        if not np.array_equal(value, last_arrays[name], equal_nan=value.dtype.kind == "f"):
            return False, name
    return set(arrays) == set(last_arrays), ""


def as_rows(rows: list[dict[str, Any]]) -> Rows:
    """Rows as a source would give them."""
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in [*NAMES, "y"]}
    return Rows("log", columns, np.arange(1, len(rows) + 1), [], 0, Position(0, 0, 0))
