"""Structures whose layers lie on several devices: the same learning, p numbers and a gram matrix between devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("spread_worker.py")
pytestmark = pytest.mark.float64  # float64 inside, whatever the run: once is enough
OUTPUTS = 2


def test_layers_on_several_devices_learn_as_on_one(tmp_path: Path) -> None:
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(WORKER), str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert len(told["differences"]) == 4
    for case, difference in told["differences"].items():
        assert difference < 1e-12, case
    assert told["same_bits"]
    assert told["share"] < 0.35  # a quarter of the numbers, and what fills the devices up
    assert told["collectives"] == [OUTPUTS * OUTPUTS, told["parameters"]]
    assert "use at most 2 devices" in told["messages"]["devices"]
    assert "not a full matrix" in told["messages"]["matrix"]
    assert "numbers, and this learner has" in told["messages"]["load"]
