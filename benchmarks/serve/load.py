"""Latency, throughput and memory of `predict_learn` over HTTP with keep-alive."""

import json
import os
import selectors
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serve.client import Client, Server, request, table

WARM_SECONDS = 1.0
MEMORY_BAR = 0.02
"""Memory may grow by this share between a quarter of the requests and all of them."""


def bodies(rows: int, count: int = 512) -> list[bytes]:
    """Requests of so many rows each."""
    found = table(rows * min(count, 20_000 // rows + 1))
    parts = [found[first : first + rows] for first in range(0, len(found), rows)]
    return [request("/predict_learn", json.dumps(part[0] if rows == 1 else part).encode()) for part in parts]


def latency(folder: Path, seconds: float, durability: str) -> dict[str, Any]:
    """One client, one row at a time, each answered before the next is sent."""
    server = Server(folder / "run", "--durability", durability)
    try:
        client, sent, times, cpu = Client(server.port), bodies(1), [], server.cpu_seconds()
        started = time.perf_counter()
        number = 0
        while (now := time.perf_counter()) < started + WARM_SECONDS + seconds:
            client.send(sent[number % len(sent)])
            status, _ = client.receive()
            assert status == 200
            if now > started + WARM_SECONDS:
                times.append(time.perf_counter() - now)
            number += 1
        cpu = server.cpu_seconds() - cpu
    finally:
        code = server.end()
    p10, p50, p99 = 1e3 * np.quantile(times, [0.1, 0.5, 0.99])
    sync_p50, sync_p99 = 1e3 * np.quantile(sync_times(folder), [0.5, 0.99])
    return {
        "p10_ms": p10,
        "p50_ms": p50,
        "p99_ms": p99,
        "sync_p50_ms": sync_p50,
        "sync_p99_ms": sync_p99,
        "cpu_us": 1e6 * cpu / number,
        "requests": number,
        "exit": code,
    }


def sync_times(folder: Path, count: int = 1000) -> list[float]:
    """The disk alone: a record as long as a request's is written into space that is there, and synced."""
    record, times = os.urandom(300), []
    file = os.open(folder / "sync", os.O_CREAT | os.O_RDWR)
    os.pwrite(file, bytes(count * len(record)), 0)
    os.fsync(file)
    for number in range(count):
        started = time.perf_counter()
        os.pwrite(file, record, number * len(record))
        os.fdatasync(file)
        times.append(time.perf_counter() - started)
        time.sleep(5e-4)
    os.close(file)
    return times


def throughput(folder: Path, seconds: float, durability: str, *, clients: int, rows: int) -> dict[str, Any]:
    """So many clients, each of which sends its next request when the last was answered."""
    server = Server(folder / "run", "--durability", durability)
    try:
        cpu = server.cpu_seconds()
        done, taken, times = drive(server.port, clients, bodies(rows), seconds)
        cpu = server.cpu_seconds() - cpu
        state = Client(server.port).get("/state")
    finally:
        code = server.end()
    return {
        "rows_per_s": done * rows / taken,
        "p50_ms": 1e3 * float(np.quantile(times, 0.5)),
        "p99_ms": 1e3 * float(np.quantile(times, 0.99)),
        "cpu_us_per_row": 1e6 * cpu / state["rows"]["learned"],
        "learned": state["rows"]["learned"],
        "exit": code,
    }


def drive(port: int, clients: int, sent: list[bytes], seconds: float, most: int = 1 << 62) -> Any:
    """Requests from one thread over many connections; those after a warm-up are counted."""
    chosen = selectors.DefaultSelector()
    begun: dict[Client, float] = {}
    number = done = answered = 0
    times: list[float] = []
    for _ in range(clients):
        client = Client(port)
        chosen.register(client.socket, selectors.EVENT_READ, client)
        client.send(sent[number % len(sent)])
        begun[client] = time.perf_counter()
        number += 1
    started = counted_from = time.perf_counter()
    while answered < most:
        for key, _ in chosen.select(10.0):
            client = key.data
            status, _ = client.receive()
            now = time.perf_counter()
            assert status == 200, status
            answered += 1
            if now > started + WARM_SECONDS:
                if not done:
                    counted_from = now
                done += 1
                if len(times) < 1_000_000:
                    times.append(now - begun[client])
            begun[client] = now
            client.send(sent[number % len(sent)])
            number += 1
        if time.perf_counter() > started + WARM_SECONDS + seconds:
            break
    taken = time.perf_counter() - counted_from
    for client in begun:  # the last answers
        client.receive()
        client.socket.close()
    return done, taken, times


def memory(folder: Path, requests: int, durability: str) -> dict[str, Any]:
    """Resident memory after each quarter of the requests, from 16 clients, with checkpoints on the way."""
    server = Server(folder / "run", "--durability", durability, "--checkpoint-every", "5")
    try:
        sent, sizes = bodies(1), []
        for _ in range(4):
            drive(server.port, 16, sent, 1e9, requests // 4)
            sizes.append(server.memory() / 2**20)
    finally:
        code = server.end()
    grown = sizes[-1] / sizes[0] - 1
    return {
        "requests": requests,
        **{f"mib_{quarter}": size for quarter, size in enumerate(sizes, 1)},
        "grown": grown,
        "passed": grown < MEMORY_BAR and code == 0,
    }
