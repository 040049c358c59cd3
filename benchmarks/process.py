"""Commands in processes of their own: their answer, time from start to exit, processor time and peak memory."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

TIMED_OUT = -signal.SIGKILL


class Ended(NamedTuple):
    """A process that has ended: exit code, standard output, standard error, seconds, and peak memory in MB."""

    code: int
    output: str
    errors: str
    seconds: float
    cpu_seconds: float
    peak_mb: float

    @property
    def complaint(self) -> str:
        """The last line of standard error, or the signal that ended the process."""
        if self.code == TIMED_OUT:
            return "killed after its time limit"
        lines = [line.strip(" │") for line in self.errors.splitlines() if any(map(str.isalnum, line))]
        return lines[-1] if lines else f"exit code {self.code}"


def measured(command: list[str], environment: Mapping[str, str] | None = None, limit_s: float = 600.0) -> Ended:
    """Run a command to its end, or kill it after `limit_s` seconds."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors, env={**os.environ, **(environment or {})})
        limit = threading.Timer(limit_s, process.kill)
        limit.start()
        _, status, usage = os.wait4(process.pid, 0)
        limit.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        for file in (output, errors):
            file.seek(0)
        cpu = usage.ru_utime + usage.ru_stime
        return Ended(process.returncode, output.read(), errors.read(), seconds, cpu, usage.ru_maxrss / 1024)


def learn(data: Path, *options: str, **limits: Any) -> tuple[dict[str, Any] | None, Ended]:
    """`natkal learn DATA --target y OPTIONS`: what it answers as JSON, None where it failed, and how it ended.

    The run is left in a folder beside the data, which the next run replaces.
    """
    command = [sys.executable, "-m", "natkal", "learn", os.fspath(data), "--target", "y", "--json", "--no-report"]
    command += ["--run", os.fspath(data.parent / "run"), "--overwrite", *options]
    ended = measured(command, **limits)
    return (json.loads(ended.output) if ended.code == 0 else None), ended
