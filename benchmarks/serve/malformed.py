"""Malformed requests beside good ones: no 5xx, the process lives, and good answers are what they would be alone."""

import json
import random
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.serve.client import Client, Server, request, table
from benchmarks.serve.kills import as_rows
from natkal.runs.folder import take_over
from natkal.runs.session import Session
from natkal.serve.versions import Versions

GOOD = 400
FIRST = "POST /learn HTTP/1.1\r\nhost: localhost\r\n"
VALUES = ['"abc"', "null", "[1]", "{}", "1e999", "NaN", "true", '""', "1" * 5000, '"\\ud800"', '"\\u0000"', "-", "1_0"]
PATHS = [
    "//learn",
    "/learn/",
    "/../learn",
    "/learn%00",
    "/%2e%2e/etc/passwd",
    "/learn?x=1;2",
    "/v2/models/../infer",
    "/LEARN",
]


def run(folder: Path, count: int) -> dict[str, Any]:
    """So many malformed requests from two threads, good ones from this one all the while."""
    server = Server(folder / "run", "--timeout", "2", "--max-body", "100000", "--keep", "1000000")
    statuses: Counter[str] = Counter()
    threads = [
        threading.Thread(target=attack, args=(server.port, count // 2, seed, statuses), daemon=True) for seed in (1, 2)
    ]
    try:
        for thread in threads:
            thread.start()
        rows, client, told = table(GOOD, seed=3), Client(server.port), []
        sent = 0
        while sent < GOOD or any(thread.is_alive() for thread in threads):
            if sent < GOOD:
                status, answer = client.post("/predict_learn", rows[sent])
                told.append(answer["p(1)"] if status == 200 else None)
            else:
                assert client.get("/healthz") == {"live": True}
                for thread in threads:
                    thread.join(0.2)
            sent += 1
        alive = server.process.poll() is None
    finally:
        code = server.end()
    versions = Versions(folder / "run", 1_000_000)
    header, arrays = versions.read(1)
    with jax.enable_x64(True):
        session = Session.restored(versions.path(1), header, arrays, folder / "alone", None)
        session.kept = None
        take_over(session)
        session.take(as_rows(rows))
        session.save()
        alone = session.metrics.columns(session.metrics.recent, 0).spread
    same = bool(np.array_equal(np.array(told, float)[-len(alone) :], alone))
    failures = sum(number for status, number in statuses.items() if status.startswith("5"))
    learned_bad = statuses.get("200", 0)
    return {
        "malformed": count,
        **{f"status_{name}": number for name, number in sorted(statuses.items())},
        "good_answers_unchanged": same,
        "alive": alive,
        "exit": code,
        "passed": same and alive and not failures and not learned_bad and code == 0,
    }


def attack(port: int, count: int, seed: int, statuses: "Counter[str]") -> None:
    """Malformed requests one after the other; slow ones are left open while others go on."""
    rng = random.Random(seed)
    slow: list[socket.socket] = []
    good = json.dumps(table(1)[0])
    for number in range(count):
        data = malformed(rng, good)
        try:
            connection = socket.create_connection(("127.0.0.1", port), 10)
            if data is None:
                connection.sendall((FIRST + "content-length: 50\r\n\r\n{").encode() if number % 2 else b"POST /lea")
                slow.append(connection)
                statuses["slow"] += 1
                if len(slow) > 50:
                    slow.pop(0).close()
                continue
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
            statuses[answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "closed"] += 1
            connection.close()
        except OSError:
            statuses["closed"] += 1
    for connection in slow:
        connection.close()


def malformed(rng: random.Random, good: str) -> bytes | None:
    """One request that must not be learned; None for one that never ends."""
    kind = rng.randrange(9)
    if kind == 0:  # JSON with damage; what happens to be whole is still refused, for its column
        text = bytearray(good.replace('"x0"', '"x0x"').encode())
        for _ in range(rng.randrange(1, 6)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        return request("/learn", bytes(text))
    if kind == 1:  # wrong types
        name = f"x{rng.randrange(10)}"
        row = json.loads(good) | {name: 0, "no such column": 1}
        return request(
            "/predict_learn", json.dumps(row).replace(f'"{name}": 0', f'"{name}": {rng.choice(VALUES)}').encode()
        )
    if kind == 2:  # too large, by its length or in fact
        if rng.random() < 0.5:
            return (FIRST + f"content-length: {10 ** rng.randrange(6, 30)}\r\n\r\n").encode() + b"[" * 1000
        return request("/learn", b"[" + b"1," * rng.randrange(60_000, 90_000) + b"1]")
    if kind == 3:  # deep
        return request("/learn", b"[" * rng.randrange(1, 40_000))
    if kind == 4:  # paths
        method = rng.choice(["GET", "POST", "PUT", "OPTIONS"])
        return f"{method} {rng.choice(PATHS)} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    if kind == 5:  # not HTTP
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 300)))
    if kind == 6:  # headers
        big = "x" * rng.randrange(10, 200_000)
        return (FIRST + f"a: {big}\r\ncontent-length: {rng.choice(['-1', '1e3', 'abc', '5'])}\r\n\r\n").encode() + b"{"
    if kind == 7:  # chunks
        chunk = rng.choice(["zz\r\n", "5\r\n{\r\n", "ffffffffffffffff\r\n{", "1\r\n{\r\n0\r\n\r\n"])
        return (FIRST + "transfer-encoding: chunked\r\n\r\n" + chunk).encode()
    return None
