"""A server in a process of its own, rows, and a client that does as little as it can."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

NAMES = [f"x{number}" for number in range(10)]
OPTIONS = ("--target", "y", "--model", "linear", "--learner", "single")


def table(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of ten numbers whose logistic target depends on three of them."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(count, 10)).round(6)
    odds = numbers[:, :3] @ np.array([1.5, -1.0, 0.5])
    labels = (rng.random(count) < 1 / (1 + np.exp(-odds))).astype(int)
    return [
        dict(zip(NAMES, row, strict=True)) | {"y": y} for row, y in zip(numbers.tolist(), labels.tolist(), strict=True)
    ]


def schema_file(folder: Path) -> Path:
    """A file whose rows show the columns."""
    path = folder / "first.csv"
    lines = [",".join(map(str, row.values())) for row in table(300)]
    path.write_text("\n".join([",".join([*NAMES, "y"]), *lines]) + "\n")
    return path


class Server:
    """`natkal serve` as a process; ready when made."""

    def __init__(self, run: Path, *options: str, start: Sequence[str] = ()):
        """`start` has the options of a new run; unless given it learns the rows of `table`."""
        made = (run / "checkpoint.nk").exists()
        new = [] if made else start or [*OPTIONS, "--schema", str(schema_file(run.parent))]
        command = [sys.executable, "-m", "natkal", "serve", str(run), *new, "--port", "0", "--json", *options]
        self.log = (run.parent / "server.log").open("ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, env=os.environ)
        assert self.process.stdout is not None
        text = b""
        while not text.rstrip().endswith(b"}"):
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(
                    f"the server ended with {self.process.wait()}: {(run.parent / 'server.log').read_text()}"
                )
            text += line
        self.told = json.loads(text)
        self.port = int(self.told["address"].rpartition(":")[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def cpu_seconds(self) -> float:
        """Processor time of the server so far, which does not depend on how busy the machine is."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Client:
    """One connection that is kept alive."""

    def __init__(self, port: int, timeout: float = 60.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        data = self._rest
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end].lower()
        at = head.index(b"content-length:") + 15
        length = int(head[at : head.find(b"\r\n", at) if head.find(b"\r\n", at) > 0 else None])
        while len(data) < end + 4 + length:
            data += self._more()
        self._rest = data[end + 4 + length :]
        return int(data[9:12]), data[end + 4 : end + 4 + length]

    def post(self, path: str, value: Any) -> tuple[int, Any]:
        self.send(request(path, json.dumps(value).encode()))
        status, body = self.receive()
        return status, json.loads(body)

    def get(self, path: str) -> Any:
        self.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        return json.loads(self.receive()[1])

    def _more(self) -> bytes:
        part = self.socket.recv(1 << 20)
        if not part:
            raise ConnectionError("the server closed the connection")
        return part


def request(path: str, body: bytes) -> bytes:
    """The bytes of a POST."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def wait_until(check: Any, seconds: float = 30.0) -> None:
    """Until something is true."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)
