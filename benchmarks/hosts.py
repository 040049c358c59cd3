"""`python -m benchmarks hosts`: one covariance over several processes of this machine, against one process."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PARTS = ("equal", "restart")
OPTIONS = {
    "parameters": (20_000, "parameters of `equal`, a multiple of 8; the matrix has as many rows and columns"),
    "rows": (20, "rows that are learned, of 8 numbers each"),
    "processes": ("2,4", "numbers of processes of `equal`"),
    "smaller": (2_000, "parameters of `restart`"),
}
MOST = 1e-12
Report = Callable[[str], None]


def run_processes(processes: int, size: int, rows: int, folder: Path, task: str) -> tuple[np.ndarray, float]:
    """What they learned, and seconds per row."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    arguments = [str(port), str(size), str(rows), str(folder), task]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hosts_worker", str(processes), str(rank), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    told = [(worker.communicate(), worker.returncode) for worker in workers]
    for (_, errors), code in told:
        if code:
            raise RuntimeError(errors[-2000:])
    return np.load(folder / f"{task}-{processes}.npy"), json.loads(told[0][0][0].splitlines()[-1])["seconds"]


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest, over the largest number."""
    return float(np.abs(one - other).max() / np.abs(other).max())


def run_part(part: str, report: Report, parameters: int, rows: int, smaller: int, processes: str) -> dict[str, Any]:
    """One part's numbers."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if part == "equal":
            alone, seconds = run_processes(1, parameters, rows, folder, "straight")
            for count in map(int, processes.split(",")):
                report(f"hosts: {parameters:,} parameters on {count} processes")
                spread, own = run_processes(count, parameters, rows, folder, "straight")
                found.append(
                    {
                        "parameters": parameters,
                        "processes": count,
                        "difference": difference(spread, alone),
                        "time_to_one_process": own / seconds,
                    }
                )
            return {"rows": found, "passed": all(row["difference"] < MOST for row in found)}
        size = smaller
        report(f"hosts: {size:,} parameters, saved on 4 processes")
        straight, _ = run_processes(4, size, rows, folder, "save")
        for count in (4, 2, 1):
            after, _ = run_processes(count, size, rows, folder, "load")
            same = bool(np.array_equal(after, straight))
            found.append(
                {
                    "parameters": size,
                    "saved_on": 4,
                    "loaded_on": count,
                    "difference": difference(after, straight),
                    "same_bits": same,
                }
            )
    return {
        "rows": found,
        "passed": found[0]["same_bits"] and all(row["difference"] < MOST for row in found),
    }


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    titles = {"equal": "One covariance over processes, against one process", "restart": "Going on after a restart"}
    return [(titles[part], found["rows"], tuple(found["rows"][0])) for part, found in results.items()]
