"""`--overwrite` replaces a run only by one that is known to be possible."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import natkal as nk
from natkal.cli import app
from tests.app.support import csv_text, table

pytestmark = pytest.mark.float64

LEARN = {
    "file": ["missing.csv", "--target", "y"],
    "target": ["d.csv", "--target", "z"],
    "model": ["d.csv", "--target", "y", "--model", "mlq:8"],
    "a function's model": ["d.csv", "--target", "y", "--model", "nowhere:model"],
    "a model's option": ["d.csv", "--target", "y", "--sequence", "a"],
    "forecasts of classes": ["d.csv", "--target", "y", "--horizon", "0"],
    "predictions": ["d.csv", "--target", "y", "--predictions", "d.csv/p.csv"],
    "nothing to learn from": ["d.csv", "--target", "y", "--features=-a,-b,-c", "--past", "none"],
}
DECIDE = {
    "file": ["missing.csv", "--arms", "a,b"],
    "the columns": ["d.csv"],
    "policy": ["d.csv", "--arms", "a,b", "--policy", "ucb", "--policy-value", "-1"],
    "model": ["d.csv", "--arms", "a,b", "--model", "mlq:8"],
    "decisions": ["d.csv", "--arms", "a,b", "--out", "d.csv/p.jsonl"],
}
CALLS = {
    "file": ({"data": "missing.csv"}, "missing.csv: no such file"),
    "target": ({"target": "z"}, "there is no column 'z'"),
    "model": ({"model": "mlq:8"}, "mlq:8"),
    "a model's option": ({"sequence": "a"}, "sequence: is for models with memory"),
    "predictions": ({"predictions": "d.csv/p.csv"}, "cannot be written"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of each command."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "d.csv").write_text(csv_text(table(60)))
    here = os.getcwd()
    os.chdir(folder)
    try:
        options = ("--model", "linear", "--learner", "single", "--no-report", "--json")
        answer = CliRunner().invoke(app, ["learn", "d.csv", "--target", "y", "--run", "learned", *options])
        assert answer.exit_code == 0, answer.output
        options = ("--model", "linear", "--no-report")
        answer = CliRunner().invoke(app, ["decide", "d.csv", "--arms", "a,b", "--run", "decided", *options])
        assert answer.exit_code == 0, answer.output
        yield folder
    finally:
        os.chdir(here)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("wrong", LEARN)
def test_a_run_that_cannot_begin_leaves_the_old_one(folder, wrong):
    before = contents(folder / "learned")
    answer = CliRunner().invoke(app, ["learn", *LEARN[wrong], "--run", "learned", "--overwrite"])
    assert answer.exit_code != 0
    assert contents(folder / "learned") == before


@pytest.mark.parametrize("wrong", DECIDE)
def test_decisions_that_cannot_begin_leave_the_old_ones(folder, wrong):
    before = contents(folder / "decided")
    answer = CliRunner().invoke(app, ["decide", *DECIDE[wrong], "--run", "decided", "--overwrite"])
    assert answer.exit_code != 0
    assert contents(folder / "decided") == before


@pytest.mark.parametrize("wrong", CALLS)
def test_a_call_that_cannot_begin_leaves_the_old_run(folder, wrong):
    before = contents(folder / "learned")
    changed, sentence = CALLS[wrong]
    with pytest.raises(ValueError, match=sentence):
        nk.learn(**{"data": "d.csv", "target": "y", **changed}, run="learned", overwrite=True)
    assert contents(folder / "learned") == before
