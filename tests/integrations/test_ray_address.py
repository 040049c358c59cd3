"""Addresses at which no Ray cluster is: a sentence at once, through the command line and in Python."""

import socket
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import natkal as nk
from natkal.cli import app


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "words"), [("nonsense", "local, auto or HOST:PORT"), ("127.0.0.1:{port}", "nothing answers")]
)
@pytest.mark.parametrize("resume", [False, True])
def test_a_bad_address_is_a_sentence(address: str, words: str, resume: bool, closed_port: int, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("user,a,y\n" + "\n".join(f"u{k % 2},{k},{k % 3}" for k in range(20)))
    start = ["--resume"] if resume else [str(rows), "--target", "y", "--key", "user"]
    command = ["learn", *start, "--ray", address.format(port=closed_port), "--run", str(tmp_path / "run")]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 1
    assert words in ended.output
    assert "Traceback" not in ended.output


def test_a_fleet_refuses_the_same(closed_port: int) -> None:
    model = nk.static_model(lambda w, u: w @ u, np.zeros(2), nk.families.Gaussian(1.0))
    with pytest.raises(ConnectionError, match="nothing answers"):
        nk.ray_fleet(nk.online(model), address=f"127.0.0.1:{closed_port}")
