"""Decisions and their rewards over HTTP, in batches of 500 rows of ten numbers."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serve.client import Client, Server, request, table
from benchmarks.serve.load import drive

ROWS = 500
FIRST_SECONDS = 600.0
"""How long the first request may take: it decides the columns, and programs are compiled for them."""
BAR = 10_000.0
"""Decisions a second, in batches, on two cores."""


def run(folder: Path, seconds: float, durability: str, arms: int, model: str) -> dict[str, Any]:
    """Decisions a second from two clients; then one client that decides and tells the rewards, batch by batch."""
    names = ",".join(f"arm {number}" for number in range(arms))
    start = ("--arms", names, "--reward-kind", "binary", "--model", model)
    server = Server(folder / "run", "--durability", durability, start=start)
    rows = [{name: value for name, value in row.items() if name != "y"} for row in table(20 * ROWS)]
    parts = [rows[first : first + ROWS] for first in range(0, len(rows), ROWS)]
    sent = [request("/decide", json.dumps(part).encode()) for part in parts]
    try:
        client = Client(server.port, FIRST_SECONDS)
        both(client, parts[0])
        cpu = server.cpu_seconds()
        done, taken, times = drive(server.port, 2, sent, seconds)
        before = client.get("/state")["rows"]
        cpu = server.cpu_seconds() - cpu
        began, rounds = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            both(client, parts[rounds % len(parts)])
            rounds += 1
        paired = rounds * ROWS / (time.perf_counter() - began)
        after = client.get("/state")["rows"]
    finally:
        code = server.end()
    return {
        "arms": arms,
        "model": model,
        "decisions_per_s": done * ROWS / taken,
        "cpu_us_per_decision": 1e6 * cpu / (before["decided"] - ROWS),
        "p50_ms": 1e3 * float(np.quantile(times, 0.5)),
        "decided_and_rewarded_per_s": paired,
        "rewarded": after["rewarded"],
        "exit": code,
        "passed": done * ROWS / taken >= BAR and code == 0,
    }


def both(client: Client, rows: list[dict[str, Any]]) -> None:
    """Decide for some rows, then tell what each decision paid: arm 0 more often where x0 is positive."""
    status, told = client.post("/decide", rows)
    assert status == 200, told
    rewards = [
        {"id": one["id"], "reward": int((one["arm"] == "arm 0") == (row["x0"] > 0))}
        for row, one in zip(rows, told["decisions"], strict=True)
    ]
    status, told = client.post("/reward", rewards)
    assert status == 200, told
