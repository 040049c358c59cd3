"""Structures whose layers lie on several devices: the same learning, p numbers and a gram matrix between devices."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("spread_worker.py")
pytestmark = pytest.mark.float64  # float64 inside, whatever the run: once is enough
OUTPUTS = 2


def told_by_worker(*arguments: str) -> dict[str, Any]:
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    flags = f"--xla_force_host_platform_device_count=4 {quick} --xla_cpu_use_fusion_emitters=false"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(WORKER), *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert len(told["differences"]) == 4
    for case, difference in told["differences"].items():
        assert difference < 1e-12, case
    return told


def test_layers_on_several_devices_learn_as_on_one(tmp_path: Path) -> None:
    told = told_by_worker(str(tmp_path))
    assert told["same_bits"]
    assert told["share"] < 0.35  # a quarter of the numbers, and what fills the devices up
    assert told["collectives"] == [OUTPUTS * OUTPUTS, told["parameters"]]
    assert "use at most 2 devices" in told["messages"]["devices"]
    assert "not a full matrix" in told["messages"]["matrix"]
    assert "numbers, and this learner has" in told["messages"]["load"]


@pytest.mark.slow
def test_a_kept_prior_is_kept_on_several_devices(tmp_path: Path) -> None:
    told_by_worker(str(tmp_path), "kept")
