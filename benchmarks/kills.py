"""`python -m benchmarks kills`: runs killed and resumed, damaged checkpoints, bad rows among a million good ones.

Exits 1 if a check fails. Kills are shared out among the workers, each a process with a run of its own. Needs neither
pyarrow nor pytest.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tests.app.garbage import damaged as damage
from tests.app.garbage import with_garbage
from tests.app.kills import arguments, check_whole, command, equal, wait
from tests.app.support import COLUMNS, csv_lines, csv_text, learned, same_arrays, table

from natkal.runs import checkpoint

PARTS = ("kills", "damaged", "garbage")
OPTIONS = {
    "kills": (200, "runs that are killed"),
    "damaged": (5000, "checkpoints that are damaged"),
    "rows": (1_000_000, "rows of the part garbage"),
    "garbage": (10_000, "bad rows among them, about"),
    "workers": (1, "processes among which kills are shared out"),
}


def run_part(
    part: str, report: Callable[[str], None], *, kills: int, damaged: int, rows: int, garbage: int, workers: int
) -> dict[str, Any]:
    """One check: whether it passed, and what was seen."""
    report(f"kills: {part}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Children compile the same programs over and over: once is enough.
        jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        began = time.monotonic()
        match part:
            case "kills":
                passed, seen = check_kills(folder, kills, workers)
            case "damaged":
                passed, seen = check_damaged(folder, damaged)
            case _:
                passed, seen = check_garbage(folder, rows, garbage)
    row = {"check": part, "passed": passed, "seen": seen, "seconds": round(time.monotonic() - began)}
    return {"rows": [row], "passed": passed}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """One line for each check."""
    rows = [row for result in results.values() for row in result["rows"]]
    return [("Checks of runs and their files", rows, tuple(rows[0]))]


def check_kills(folder: Path, kills: int, workers: int) -> tuple[bool, str]:
    """Runs killed with SIGKILL at a random moment and resumed, against the run that was never killed."""
    data, log = folder / "kill.csv", folder / "log"
    data.write_text(csv_text(table(80_000)))
    whole = folder / "whole"
    assert wait(command(arguments(data, whole), log)) == 0, log.read_text()  # compiles for all that follow
    shutil.rmtree(whole)
    started = time.monotonic()
    assert wait(command(arguments(data, whole), log)) == 0, log.read_text()
    duration = time.monotonic() - started
    children = []
    for worker in range(workers):
        child = os.fork()
        if not child:
            seen = [kill_one(folder, f"cut-{worker}", number, duration) for number in range(worker, kills, workers)]
            (folder / f"kills-{worker}.json").write_text(json.dumps(np.sum(seen, axis=0).tolist() if seen else [0] * 3))
            os._exit(0)
        children.append(child)
    assert [wait(child) for child in children] == [0] * workers
    counts = [json.loads((folder / f"kills-{worker}.json").read_text()) for worker in range(workers)]
    same, torn, died = (sum(column) for column in zip(*counts, strict=True))
    good = same == kills and torn == 0
    return good, f"{same} of {kills} runs bit-equal after SIGKILL ({died} were still running when killed), {torn} torn"


def kill_one(folder: Path, name: str, number: int, duration: float) -> tuple[bool, bool, bool]:
    """One run killed at a moment of its own and resumed: whether it is the same, torn, and was running when killed."""
    cut, data, log = folder / name, folder / "kill.csv", folder / f"{name}.log"
    shutil.rmtree(cut, ignore_errors=True)
    cut.with_suffix(".csv").unlink(missing_ok=True)
    child = command(arguments(data, cut, "--resume"), log)
    time.sleep(random.Random(number).uniform(0.1, 1.0) * duration)
    os.kill(child, signal.SIGKILL)
    died = wait(child) == -signal.SIGKILL
    try:
        check_whole(cut)
        code = wait(command(arguments(data, cut, "--resume"), log))
    except checkpoint.CheckpointError:
        code = 1
    if number % 20 == 19:
        print(f"     kill {number + 1} resumed with exit code {code}", file=sys.stderr, flush=True)
    return code == 0 and equal(cut, folder / "whole"), code != 0, died


def check_damaged(folder: Path, count: int) -> tuple[bool, str]:
    """Checkpoints with a flipped bit, cut, lengthened or with lengths that lie: refused, in little memory."""
    rng = np.random.default_rng(0)
    rows = folder / "rows.csv"
    rows.write_text(csv_text(table(2000)))
    assert wait(command(arguments(rows, folder / "whole"), folder / "log")) == 0
    data = (folder / "whole" / checkpoint.CURRENT).read_bytes()
    target = folder / "damaged.nk"
    refused = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        target.write_bytes(damage(data, rng))
        try:
            checkpoint.read(target)
        except checkpoint.CheckpointError:
            refused += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    target.write_bytes(data[:-1])
    code = wait(command(["predict", str(target), str(rows)], folder / "log"))
    said = "damaged" in (folder / "log").read_text()
    good = refused == count and code == 1 and said
    return (
        good,
        f"{refused} of {count} refused, memory grew by {grown:.1f} MB; the command exits with {code} and says why",
    )


def check_garbage(folder: Path, rows: int, bad: int) -> tuple[bool, str]:
    """Bad rows among good ones: counted to the last, and what is learned is what the good rows teach, bit for bit."""
    lines = csv_lines(table(rows))
    clean, dirty = folder / "clean.csv", folder / "dirty.csv"
    clean.write_text("\n".join([COLUMNS, *lines]) + "\n")
    planted = with_garbage(lines, dirty, COLUMNS, every=int(0.95 * rows / bad), seed=0)
    results = []
    for data in (clean, dirty):
        run = folder / f"run-{data.stem}"
        log = folder / "log"
        assert wait(command(arguments(data, run, "--checkpoint-every", "60s"), log)) == 0, log.read_text()
        results.append(json.loads(log.read_text())["rows"])
    expected = {"read": rows + len(planted), "learned": rows, "rejected": len(planted), "skipped": 0}
    lines_named = [
        json.loads(line)["line"] for line in (folder / "run-dirty" / "rejects.jsonl").read_text().splitlines()
    ]
    same = same_arrays(learned(folder / "run-clean"), learned(folder / "run-dirty"))
    good = results[1] == expected and lines_named == planted and same
    return good, f"{results[1]}, lines named right: {lines_named == planted}, parameters bit-equal: {same}"
