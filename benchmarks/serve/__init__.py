"""`python -m benchmarks serve`: `natkal serve` over real HTTP, under load, killed, and sent nonsense.

The bars, at full size: --seconds 30 --requests 2000000 --kills 200 --malformed 10000. Every part prints the load
average of the machine: latencies mean little on one that is busy.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.serve import decisions, kills, load, malformed

PARTS = ("latency", "single", "batch", "decide", "memory", "kills", "malformed")
OPTIONS = {
    "seconds": (5.0, "seconds of load for latency, single, batch and decide"),
    "requests": (20_000, "requests over which memory is watched"),
    "kills": (5, "SIGKILLs under load"),
    "malformed": (1_000, "malformed requests"),
    "arms": (5, "arms of decide"),
    "model": ("auto", "model of decide: auto, linear, mlp:64"),
    "durability": ("group", "none, group or each"),
}
TITLES = {
    "latency": "predict_learn, one client, one row a request",
    "single": "predict_learn, 16 clients, one row a request",
    "batch": "predict_learn, 500 rows a request, 2 clients",
    "decide": "decide, 500 rows a request, 2 clients, then rewards of all",
    "memory": "Memory over many requests",
    "kills": "SIGKILL under load",
    "malformed": "Malformed requests beside good ones",
}


def run_part(
    part: str,
    report: Callable[[str], None],
    seconds: float,
    requests: int,
    kills: int,
    malformed: int,
    durability: str,
    arms: int,
    model: str,
) -> dict[str, Any]:
    """One part's numbers."""
    report(f"serve: {part}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calls: dict[str, Callable[[], dict[str, Any]]] = {
            "latency": lambda: load.latency(folder, seconds, durability),
            "single": lambda: load.throughput(folder, seconds, durability, clients=16, rows=1),
            "batch": lambda: load.throughput(folder, seconds, durability, clients=2, rows=500),
            "decide": lambda: decisions.run(folder, seconds, durability, arms, model),
            "memory": lambda: load.memory(folder, requests, durability),
            "kills": lambda: kill_part(folder, kills, durability, report),
            "malformed": lambda: malformed_part(folder, malformed),
        }
        found = calls[part]()
    return {"rows": [found | {"load_average": os.getloadavg()[0]}], "passed": found.get("passed")}


kill_part = kills.run
malformed_part = malformed.run


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    return [(TITLES[part], found["rows"], tuple(found["rows"][0])) for part, found in results.items()]
