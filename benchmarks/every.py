"""`python -m benchmarks all --smoke`: every part that has a small size, one after the other, each in a process."""

import os
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks import BENCHMARKS, SMALL
from benchmarks.size import VARIABLE

LIMIT_S = 300.0
"""A part that takes longer is not small."""


def every(names: tuple[str, ...] = SMALL) -> list[dict[str, Any]]:
    """A row for each part: how long it took, and what was wrong where it did not run."""
    rows = []
    for name in names:
        for part in import_module(BENCHMARKS[name]).PARTS:
            command = [sys.executable, "-m", "benchmarks", name, part, "--smoke", "--json"]
            started = time.perf_counter()
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, VARIABLE: "1"}
                )
                wrong = "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
            except subprocess.TimeoutExpired:
                wrong = f"took more than {LIMIT_S:g} s"
            rows.append({"name": name, "part": part, "seconds": time.perf_counter() - started, "wrong": wrong})
            print(f"{name} {part}: {rows[-1]['seconds']:.1f} s {wrong}", file=sys.stderr, flush=True)
    return rows
