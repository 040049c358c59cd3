"""Data that once ended in a traceback ends in a sentence: exit code 1 and the words as they are."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from natkal.cli import app
from natkal.runs.session import Session
from tests.app.support import csv_text, learn, table

pytestmark = pytest.mark.float64


def natkal(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("d.csv", "[/b],[red]\n1,2\n", "error: there is no column 'y'; the data has [/b], [red]"),
        ("d.jsonl", '{"y": {"z": 1}, "a": 1}\n' * 9, "error: target 'y' holds nested values such as {'z': 1}"),
        ("d.jsonl", '{"y": "\\ud800"}\n' * 9, r"line 1: the row holds half of a surrogate pair, \ud800"),
        ("d.jsonl", '{"\\ud800": 1}\n' * 9, r"half of a surrogate pair, \ud800"),
        ("d.csv", "a;y\nx;1,234\nx;5,678\n", "may be 1234 or 1.234; say which with --decimal . (thousands)"),
        ("d.csv", "a,y\nMüller,1\n".encode("cp1252"), "looks like Windows-1252 (Latin-1); --encoding cp1252 reads it"),
        ("d.csv", "a,y\nx,1\n".encode("utf-16"), "is UTF-16 text; --encoding utf-16 reads it"),
        ("d.parquet", b"PAR1 and no more", "cannot be read as parquet"),
    ],
)
def test_complaints_are_sentences(name, data, complaint):
    Path(name).write_bytes(data if isinstance(data, bytes) else data.encode())
    answer = natkal("learn", name, "--target", "y")
    assert (answer.exit_code, answer.stdout) == (1, ""), answer.output
    assert complaint in answer.stderr


def test_a_file_name_that_is_no_text_can_be_complained_about():
    Path("d\udcff.csv").write_text("a,b\n1,2\n")
    answer = natkal("learn", "d\udcff.csv", "--target", "y")
    assert answer.exit_code == 1
    assert "there is no column 'y'" in answer.stderr
    Path("e\udcff.csv").write_text("")
    assert r"e\udcff.csv: is empty" in natkal("learn", "e\udcff.csv", "--target", "y").stderr


def test_figures_that_are_not_finite_are_kept_in_the_checkpoint(tmp_path):
    """The squared error of a count far above what was expected overflows; the run ends and can be resumed."""
    (tmp_path / "d.csv").write_text(csv_text(table(60)))
    session = learn(tmp_path / "run", tmp_path / "d.csv")
    session.metrics.parts[0].totals["log_loss"] = math.inf
    session.outputs.clear()  # they are closed
    session.save()
    assert Session.resume(tmp_path / "run")[0].metrics.parts[0].totals["log_loss"] == math.inf


def test_options_reach_the_reader():
    text = "preis;ort;y\n" + "".join(f"{i},5;K\u00f6ln;{i % 2}\n" for i in range(100))
    Path("d.csv").write_bytes(text.encode("cp1252"))
    learned = natkal(
        "learn", "d.csv", "--target", "y", "--encoding", "cp1252", "--decimal", ",", "--model", "linear",
        "--learner", "single", "--no-report",
    )  # fmt: skip
    assert learned.exit_code == 0, learned.output
    assert "features preis (number), ort (category)" in learned.stderr
    predicted = natkal("predict", "natkal-run", "d.csv", "--encoding", "cp1252", "--out", "p.csv", "--json")
    assert predicted.exit_code == 0, predicted.output
    assert json.loads(predicted.stdout)["rows"]["predicted"] == 100
