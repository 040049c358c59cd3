"""Real processes killed with SIGKILL. A script of its own: it forks, which a process with a running JAX must not do.

    python -m tests.app.kills FOLDER KILLS

kills one run over and over, each time resumed, and prints what was seen as JSON.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import jax  # noqa: F401  (imported once, before any fork; its backend starts in the children)

from natkal.cli import app
from natkal.runs import checkpoint, session  # noqa: F401
from tests.app.support import csv_text, learned, same_arrays, table


def command(arguments: list[str], log: Path) -> int:
    """Start the command line in a child of its own; returns its process id."""
    child = os.fork()
    if child:
        return child
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    try:
        app(arguments, standalone_mode=True)
    except SystemExit as ending:
        os._exit(int(ending.code or 0))
    os._exit(1)


def wait(child: int) -> int:
    """The exit code of a child, negative where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def ended(child: int) -> bool:
    """Whether a child has come to its end by itself."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def arguments(data: Path, run: Path, *more: str) -> list[str]:
    """A run with predictions and many checkpoints."""
    return [
        *("learn", str(data), "--target", "y", "--model", "linear", "--learner", "single"),
        *("--classes", "0,1"),
        *("--run", str(run), "--predictions", str(run.with_suffix(".csv")), "--checkpoint-every", "1000"),
        *("--no-report", "--json", *more),
    ]


def check_whole(run: Path) -> None:
    """Raises if a kill has left a torn checkpoint."""
    for name in (checkpoint.CURRENT, checkpoint.PREVIOUS):
        if (run / name).exists():
            checkpoint.read(run / name)


def equal(left: Path, right: Path) -> bool:
    """Whether two runs predicted and learned the same, bit for bit."""
    same = left.with_suffix(".csv").read_bytes() == right.with_suffix(".csv").read_bytes()
    return same and same_arrays(learned(left), learned(right))


def modified(path: Path) -> int | None:
    """When the file was last written; None while there is none, as between two renames."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def kill_over_and_over(folder: Path, kills: int, rows: int) -> dict[str, int | bool]:
    """One run killed so many times, a little after each new checkpoint or while it starts, against one never killed."""
    data, log, whole, cut = folder / "d.csv", folder / "log", folder / "whole", folder / "cut"
    data.write_text(csv_text(table(rows)))
    assert wait(command(arguments(data, whole), log)) == 0, log.read_text()
    rng = random.Random(0)
    died, saved = 0, cut / checkpoint.CURRENT
    for number in range(kills):
        before = modified(saved)
        child = command(arguments(data, cut, "--resume"), log)
        if number % 4 == 3:
            time.sleep(rng.uniform(0.0, 0.3))
        else:
            while not ended(child) and modified(saved) in (None, before):
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        died += wait(child) == -signal.SIGKILL
        check_whole(cut)
    assert wait(command(arguments(data, cut, "--resume"), log)) == 0, log.read_text()
    return {"killed": died, "equal": equal(cut, whole), "read": json.loads(log.read_text())["rows"]["read"]}


if __name__ == "__main__":
    print(json.dumps(kill_over_and_over(Path(sys.argv[1]), int(sys.argv[2]), rows=60_000)))
