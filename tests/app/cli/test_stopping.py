"""SIGINT and SIGTERM end a process whose main thread does not see them."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from natkal.runs.stopping import CLOSING_SECONDS, GRACE_SECONDS
from tests.app.support import csv_text, table

DEAF = textwrap.dedent("""
    import jax, jax.numpy as jnp
    from natkal.runs.stopping import stop_on_signals, watch

    def compile_for_minutes(x):
        for _ in range(3_000):
            x = jnp.sin(x) @ jnp.cos(x) + x
        return x

    endless = lambda x: jax.lax.while_loop(lambda x: x[0, 0] < 2, lambda x: jnp.sin(x), x)
    watch()
    with stop_on_signals(lambda number: f"last words after {number}") as stopped:
        lowered = jax.jit(WORK).lower(jnp.ones((8, 8)))
        print("ready", flush=True)
        lowered.compile()(jnp.ones((8, 8))).block_until_ready()
    print("not reached")
""")


@pytest.mark.parametrize(
    ("work", "number"),
    [
        ("endless", signal.SIGTERM),
        pytest.param("compile_for_minutes", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_process_deaf_to_signals_ends(work: str, number: signal.Signals) -> None:
    """A compiled loop without end, and a compilation that takes minutes."""
    command = [sys.executable, "-c", DEAF.replace("WORK", work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"last words after {int(number)}" in err
    assert out == ""
    assert GRACE_SECONDS < 2 < CLOSING_SECONDS


@pytest.mark.slow
def test_learn_ends_while_it_compiles_and_at_once_at_a_second_signal(tmp_path: Path) -> None:
    data = tmp_path / "d.csv"
    data.write_text(csv_text(table(2_000)))
    command = [sys.executable, "-m", "natkal", "learn", str(data), "--target", "y", "--run", str(tmp_path / "run")]
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"}
    for signals in (1, 2):
        with subprocess.Popen([*command, "--overwrite"], stderr=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stderr is not None
            while not process.stderr.readline().startswith("learner"):
                pass
            time.sleep(1.0)
            started = time.monotonic()
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.05)
            err = process.communicate(timeout=60)[1]
        assert process.returncode == 128 + signal.SIGTERM
        assert time.monotonic() - started < (3 if signals == 1 else 1)
        assert ("goes on from the last checkpoint" in err) == (signals == 1)
