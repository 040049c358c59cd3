"""Whatever model a user writes, `nk.run` learns what a loop of steps learns, and the process goes on."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_forty_random_models() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.stream.fuzz_models", "40"], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
