"""`natkal learn`, `predict` and `report` as a person or a script meets them."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from natkal.cli import app
from natkal.runs import checkpoint
from tests.app.support import csv_text, table

pytestmark = pytest.mark.float64


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text(csv_text(table(150)) + "x,y\n")


def natkal(*arguments: str, **options):
    return CliRunner().invoke(app, list(arguments), **options)


LEARN = ("learn", "d.csv", "--target", "y", "--model", "linear")


def test_json_is_one_object_and_nothing_else():
    answer = natkal(*LEARN, "--json", "--predictions", "p.jsonl", "--metrics", "m.csv")
    assert answer.exit_code == 0, answer.output
    assert answer.stderr == ""
    result = json.loads(answer.stdout)
    assert result["rows"] == {"read": 151, "learned": 150, "rejected": 1, "skipped": 0}
    assert result["finished"] is True
    assert result["targets"][0]["log_loss"] < result["targets"][0]["baseline_log_loss"]
    with open("p.jsonl") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == 150
    assert rows[0]["p(0)"] + rows[0]["p(1)"] == pytest.approx(1)
    with open("m.csv") as file:
        windows = list(csv.DictReader(file))
    assert [int(row["row"]) for row in windows] == [64, 128, 150]
    mean = sum(int(row["rows"]) * float(row["log_loss"]) for row in windows) / 150
    assert result["targets"][0]["log_loss"] == pytest.approx(mean)


def test_plain_lines_without_a_terminal_and_a_report():
    answer = natkal(*LEARN)
    assert answer.exit_code == 0, answer.output
    assert "target   y: binary" in answer.stderr
    assert "read 151 = learned 150 (99.3%) + rejected 1 (0.7%) + skipped 0" in answer.stdout
    assert "\x1b" not in answer.output
    assert os.path.getsize("natkal-run/report.html") > 5000
    again = natkal(*LEARN)
    assert again.exit_code == 1
    assert "holds a run" in again.stderr
    assert natkal("report", "natkal-run", "--out", "r.html", "--json").exit_code == 0
    assert os.path.getsize("r.html") > 5000


def test_predict_learns_nothing_and_needs_no_labels(tmp_path):
    natkal(*LEARN, "--no-report", "--json")
    before = (tmp_path / "natkal-run" / checkpoint.CURRENT).read_bytes()
    (tmp_path / "new.csv").write_text("c,b,a,extra\n1,100,0.5,z\n1.01,90,oops,z\n,110,0,z\n")
    answer = natkal("predict", "natkal-run", "new.csv")
    assert answer.exit_code == 0, answer.output
    rows = list(csv.DictReader(io.StringIO(answer.stdout)))
    assert [row["line"] for row in rows] == ["2", "4"]
    assert rows[0]["predicted"] in ("0", "1")
    assert "read 3 = predicted 2 (67%) + rejected 1 (33%) + skipped 0" in answer.stderr
    assert (tmp_path / "natkal-run" / checkpoint.CURRENT).read_bytes() == before


def test_damaged_checkpoints_are_refused_with_an_exit_code(tmp_path):
    natkal(*LEARN, "--no-report", "--json")
    path = tmp_path / "natkal-run" / checkpoint.CURRENT
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    answer = natkal("predict", str(path), "d.csv")
    assert answer.exit_code == 1
    assert "SHA-256" in answer.stderr
    assert answer.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["learn", "d.csv"], 2, "give DATA and --target"),
        (["learn", "d.csv", "--target", "y", "--fading", "1"], 2, "must lie in [0, 1), got 1"),
        (["learn", "d.csv", "--target", "y", "--prior-scale", "0"], 2, "must be positive and finite, got 0"),
        (["learn", "d.csv", "--target", "y", "--learner", "auto", "--fading", "0.1"], 2, "are for one filter"),
        (
            ["learn", "d.csv", "--target", "y", "--model", "gru:32", "--id", "a"],
            1,
            "must learn the rows in their order",
        ),
        (["learn", "d.csv", "--target", "y", "--checkpoint-every", "soon"], 2, "rows (10000) or seconds (30s)"),
        (["learn", "d.csv", "--target", "y", "--task", "guess"], 2, "guess"),
        (["learn", "d.csv", "--target", "z"], 1, "there is no column 'z'; the data has a, b, c, y"),
        (["learn", "nowhere.csv", "--target", "y"], 1, "nowhere.csv: no such file"),
        (["learn", "@nothing", "--target", "y"], 1, "natkal comes with @flights"),
        (["learn", "d.csv", "--target", "y", "--model", "mlp:x"], 2, "write mlp:64"),
        (["learn", "d.csv", "--target", "y", "--model", "os:nothing"], 1, "(inputs, outputs) -> (apply, params)"),
        (["learn", "d.csv", "--target", "y", "--predictions", "d.csv"], 1, "is the data itself"),
        (["learn", "--resume"], 1, "no checkpoint to resume from"),
        (["predict", "nowhere", "d.csv"], 1, "nowhere"),
        (["report", "nowhere"], 1, "no checkpoint"),
    ],
)
def test_complaints_are_clear(arguments, code, complaint):
    answer = natkal(*arguments)
    assert answer.exit_code == code, answer.output
    assert complaint in " ".join(answer.stderr.replace("│", " ").split())
    assert answer.stdout == ""


def test_sigterm_leaves_a_checkpoint_and_a_pipe_is_learned_as_it_comes():
    command = [sys.executable, "-m", "natkal", "learn", "-", "--target", "y", "--model", "linear"]
    command += ["--sample", "100", "--predictions", "p.csv", "--no-report"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        err = feed_and_stop(process)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert b"stopped after 120 rows" in err
    header, _ = checkpoint.read(Path("natkal-run") / checkpoint.CURRENT)
    assert header["counts"]["read"] == 120


def feed_and_stop(process: subprocess.Popen) -> bytes:
    """Send 120 rows, wait until they are predicted, and ask to stop while the pipe stays open."""
    assert process.stdin is not None
    lines = csv_text(table(150)).splitlines(keepends=True)
    process.stdin.write("".join(lines[:121]).encode())
    process.stdin.flush()
    # Predictions of the rows sent so far are there while the pipe stays open.
    while process.poll() is None and not (os.path.exists("p.csv") and os.path.getsize("p.csv") > 2000):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    return process.communicate()[1]
