"""`python -m benchmarks kafka`: a topic learned exactly once through kills and rebalances, its rate, and recovery.

    once       two processes in a group with a model for each partition, killed with SIGKILL and asked to leave with
               SIGTERM over and over, against one process that was left alone: states bit for bit
    rate       one process on a topic against the same rows in a file, rows a second and processor time
    recovery   seconds until all partitions are learned again after a member left, and after one was killed

The broker is the mock one inside librdkafka, in a process of its own on the same machine.
"""

import atexit
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from tests.app.kills import command, ended, wait
from tests.app.support import learned, same_arrays

from benchmarks.kafka_broker import BrokerProcess, rows_of
from benchmarks.process import measured
from natkal.runs import checkpoint

PARTS = ("once", "rate", "recovery")
OPTIONS = {
    "messages": (1_000_000, "messages of the part once"),
    "partitions": (8, "partitions of the topic"),
    "kills": (100, "members that are killed"),
    "rebalances": (20, "members that are asked to leave"),
    "rows": (1_000_000, "rows of the part rate, linear model; 0: leave it out"),
    "default_rows": (100_000, "rows of the part rate, default model; 0: leave it out"),
    "repeats": (3, "runs of each command in the part rate, of which the fastest counts"),
    "session_ms": (3000, "after so long without a heartbeat a member is given up"),
}
LINEAR = ("--model", "linear", "--learner", "single")
RATE_BAR = 0.6
"""The share of the rate on a file that a topic must reach."""


def run_part(part: str, report: Callable[[str], None], **options: Any) -> dict[str, Any]:
    """One of the parts: its rows, and whether its bar was reached."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        measure = {"once": check_once, "rate": measure_rate, "recovery": measure_recovery}[part]
        return measure(folder, report, **options)


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """One table for each part."""
    return [(result["title"], result["rows"], tuple(result["rows"][0])) for result in results.values()]


class Member:
    """A process of the group, started again whenever it has ended."""

    def __init__(self, number: int, arguments: list[str], folder: Path):
        self.log = folder / f"member-{number}.log"
        self._arguments = arguments
        self.child = command(arguments, self.log)
        atexit.register(self._kill)

    def _kill(self) -> None:
        """End a member that is still there when the benchmark ends."""
        with contextlib.suppress(ChildProcessError):
            if not ended(self.child):
                self.stop(signal.SIGKILL)

    def end(self, number: int) -> None:
        """Send a signal, wait for the end, and start again."""
        if ended(self.child):
            raise RuntimeError(f"a member ended by itself: {self.log.read_text()[-2000:]}")
        self.stop(number)
        self.child = command(self._arguments, self.log)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        os.kill(self.child, number)
        wait(self.child)


def arguments_of(address: str, run: Path, folder: Path, session_ms: int, *more: str) -> list[str]:
    """A member of the group with a checkpoint every thousand rows of a partition."""
    config = folder / "client"
    config.write_text(f"session.timeout.ms={session_ms}\nheartbeat.interval.ms=200\n")
    return [
        *("learn", f"kafka://{address}/rows", "--target", "y", "--task", "regression", *LINEAR, "--partition-models"),
        *("--run", str(run), "--checkpoint-every", "1000", "--sample", "100", "--kafka-config", str(config)),
        *("--json", *more),
    ]


def offsets_in(run: Path, partitions: int) -> list[int]:
    """The next message of each partition, as the checkpoints have it."""
    return [_offset(run / f"partition-{number}") for number in range(partitions)]


def _offset(folder: Path) -> int:
    try:
        found = checkpoint.find(folder)
    except Exception:  # replaced while it was read
        return 0
    return 0 if found is None else max(found[1]["offsets"].values(), default=0)


def check_once(
    folder: Path,
    report: Callable[[str], None],
    *,
    messages: int,
    partitions: int,
    kills: int,
    rebalances: int,
    session_ms: int,
    **_: Any,
) -> dict[str, Any]:
    """Messages come in portions, one before each kill or departure, so that all of them meet members at work."""
    rng = random.Random(0)
    events = [signal.SIGKILL] * kills + [signal.SIGTERM] * rebalances
    rng.shuffle(events)
    portions = [messages * number // (len(events) + 1) for number in range(len(events) + 2)]
    cut, whole, began = folder / "cut", folder / "whole", time.monotonic()
    with BrokerProcess({"rows": partitions}) as broker:
        broker.send("rows", 0, portions[1])
        arguments = arguments_of(broker.address, cut, folder, session_ms)
        members = [Member(number, arguments, folder) for number in range(2)]
        for number, event in enumerate(events):
            moved = _wait_for_progress(cut, partitions, sum(offsets_in(cut, partitions)))
            time.sleep(rng.uniform(0.0, 0.3))
            report(f"kafka: {number + 1} of {len(events)}, {moved:,} messages in checkpoints, {event.name}")
            members[number % 2].end(event)
            broker.send("rows", portions[number + 1], portions[number + 2])
        for member in members:
            member.stop()
        for run in (cut, whole):
            log = folder / "end.log"
            assert wait(command(arguments_of(broker.address, run, folder, session_ms, "--until-end"), log)) == 0, (
                log.read_text()
            )
    places = [f"partition-{number}" for number in range(partitions)]
    equal = sum(same_arrays(learned(cut / place), learned(whole / place)) for place in places)
    counts = [checkpoint.find(cut / place)[1]["counts"] for place in places]  # pyright: ignore[reportOptionalSubscript]
    total = sum(one["learned"] for one in counts)
    row = {
        **{"messages": messages, "partitions": partitions, "killed": kills, "left": rebalances},
        **{"learned": total, "equal_states": equal, "seconds": round(time.monotonic() - began)},
    }
    passed = equal == partitions and total == messages == sum(one["read"] for one in counts)
    return {"title": "Kafka: exactly once through kills and rebalances", "rows": [row], "passed": passed}


def _wait_for_progress(run: Path, partitions: int, before: int, limit_s: float = 60.0) -> int:
    """Until the checkpoints have moved on; how many messages they hold."""
    deadline = time.monotonic() + limit_s
    while (now := sum(offsets_in(run, partitions))) <= before and time.monotonic() < deadline:
        time.sleep(0.05)
    return now


def measure_rate(
    folder: Path,
    report: Callable[[str], None],
    *,
    rows: int,
    default_rows: int,
    partitions: int,
    repeats: int,
    **_: Any,
) -> dict[str, Any]:
    """The same rows from a file of JSON lines, from a topic, and from a topic with a model for each partition."""
    found = []
    for model, count, options in (("linear", rows, LINEAR), ("default", default_rows, ())):
        if not count:
            continue
        data = folder / f"{model}.jsonl"
        data.write_text("\n".join(rows_of(0, count)) + "\n")
        with BrokerProcess({"rows": partitions, "one": 1}) as broker:
            broker.send("rows", 0, count)
            url = f"kafka://{broker.address}/rows"
            ways = {
                "file": [str(data)],
                "topic": [url, "--until-end"],
                "partition models": [url, "--until-end", "--partition-models"],
            }
            best: dict[str, dict[str, Any]] = {}
            for turn in range(repeats):
                for way, words in ways.items():
                    answer = _timed(folder / f"{model}-{way}-{turn}".replace(" ", "-"), words, options)
                    report(f"kafka: rate, {model}, {way}, {turn + 1} of {repeats}: {answer}")
                    if way not in best or answer["rate"] > best[way]["rate"]:
                        best[way] = answer
        for way, answer in best.items():
            share = answer["rate"] / best["file"]["rate"]
            found.append({"model": model, "rows": count, "from": way, **answer, "of_the_file": share})
    passed = all(row["of_the_file"] >= RATE_BAR for row in found if row["from"] == "topic")
    return {"title": "Kafka: rows a second of one process", "rows": found, "passed": passed}


def _timed(run: Path, data: list[str], options: tuple[str, ...]) -> dict[str, Any]:
    words = [sys.executable, "-m", "natkal", "learn", *data, "--target", "y", "--task", "regression", *options]
    words += ["--run", str(run), "--json"]
    ending = measured([*words, *(() if "--partition-models" in data else ("--no-report",))])
    assert ending.code == 0, ending.errors
    answer = json.loads(ending.output)
    return {"rate": answer["rows_per_second"], "cpu_us_a_row": 1e6 * ending.cpu_seconds / answer["rows"]["read"]}


def measure_recovery(
    folder: Path, report: Callable[[str], None], *, partitions: int, session_ms: int, **_: Any
) -> dict[str, Any]:
    """Seconds until messages of all partitions reach checkpoints, with two members, after one left or was killed."""
    found, sent, portion = [], 0, 2000 * partitions
    settling_s = 5 + 4 * session_ms / 1000  # until both members have partitions
    run = folder / "run"
    with BrokerProcess({"rows": partitions}) as broker:
        arguments = arguments_of(broker.address, run, folder, session_ms, "--checkpoint-every", "0.5s")
        members = [Member(number, arguments, folder) for number in range(2)]

        def caught_up() -> float:
            nonlocal sent
            broker.send("rows", sent, sent + portion)
            sent += portion
            began = time.monotonic()
            while min(offsets_in(run, partitions)) < sent // partitions:
                time.sleep(0.05)
                if time.monotonic() - began > 120:
                    raise RuntimeError(f"no recovery: {offsets_in(run, partitions)} of {sent // partitions}")
            return time.monotonic() - began

        caught_up()
        time.sleep(settling_s)
        usual = caught_up()
        for event, words in ((signal.SIGTERM, "a member left"), (signal.SIGKILL, "a member was killed")):
            report(f"kafka: recovery, {words}")
            members[1].stop(event)
            seconds = caught_up()
            found.append({"event": words, "session_s": session_ms / 1000, "seconds": seconds, "usual_s": usual})
            members[1] = Member(1, arguments, folder)
            caught_up()
            time.sleep(settling_s)
        for member in members:
            member.stop()
    return {"title": f"Kafka: seconds until {portion:,} new messages are in checkpoints", "rows": found}
