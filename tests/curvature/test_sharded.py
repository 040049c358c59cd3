"""A matrix spread over devices: the same learning, and only p numbers per row between the devices."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("sharded_worker.py")
pytestmark = pytest.mark.float64  # float64 inside, whatever the run: once is enough


def start(processes: int, rank: int, port: int, devices: int) -> subprocess.Popen:
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(WORKER), str(processes), str(rank), str(port)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("processes", "devices"), [(1, 8), (2, 1)])
def test_sharded_learning_is_the_same_and_moves_little(processes: int, devices: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [start(processes, rank, port, devices) for rank in range(processes)]
    for worker in workers:
        out, errors = worker.communicate(timeout=300)
        assert worker.returncode == 0, errors
        told = json.loads(out.splitlines()[-1])
        assert told["devices"] == processes * devices
        assert told["shard"][0] == -(-45 // told["devices"])
        assert told["cov"] < 1e-10
        assert told["step"] < 1e-10
        assert told["moved_bytes"] == told["needed_bytes"]
