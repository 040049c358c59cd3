"""Where a resumed run goes on: in its own files, at the start of new ones, or with a refusal."""

import json

import pytest
from typer.testing import CliRunner

from natkal.cli import app
from natkal.errors import StreamError
from natkal.reading.go_on import START, position_in
from natkal.tables.schema.rows import Position
from tests.app.support import csv_text, table

STANDS = Position(1, 70, 9)
OWN = ["/d/a.csv", "/d/b.csv"]


@pytest.mark.parametrize(
    ("files", "own", "ended", "expected"),
    [
        (["/d/a.csv", "/d/b.csv"], OWN, True, STANDS),
        (["/d/a.csv", "/d/b.csv", "/d/c.csv"], OWN, False, STANDS),
        (["/d/b.csv", "/d/c.csv"], OWN, False, STANDS._replace(file=0)),
        (["/d/c.csv"], OWN, True, START),
        (["-"], OWN, True, START),
        (["/elsewhere/a.csv", "/elsewhere/b.csv"], OWN, False, STANDS),
        (["/elsewhere/a.csv", "/elsewhere/b.csv"], OWN, True, START),
        (["-"], ["-"], False, Position(0, 70, 9)),
        (["/d/c.csv"], ["-"], False, START),
        (["/d/c.csv"], [], False, START),
    ],
)
def test_a_run_goes_on_where_it_stands_or_at_the_start_of_new_files(files, own, ended, expected):
    stands = STANDS if len(own) == 2 else STANDS._replace(file=0)
    assert position_in(files, own, stands, ended=ended) == expected


@pytest.mark.parametrize(
    ("files", "ended", "complaint"),
    [
        (["/d/c.csv"], False, "stands in /d/b.csv, line 9, and has not read all of it"),
        (["-"], False, "has not read all of it"),
        (["/d/0.csv", "/d/a.csv", "/d/b.csv"], True, "/d/0.csv has not been read and comes before /d/b.csv"),
    ],
)
def test_rows_that_would_be_lost_are_a_refusal(files, ended, complaint):
    with pytest.raises(StreamError, match=complaint):
        position_in(files, OWN, STANDS, ended=ended)


def call(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_a_new_file_is_learned_from_its_first_row(tmp_path):
    values = table(60)
    first, more = tmp_path / "first.csv", tmp_path / "more.csv"
    first.write_text(csv_text(values[:20]))
    more.write_text(csv_text(values[20:]))
    run = ["--run", tmp_path / "run", "--no-report"]
    assert call("learn", first, "--target", "y", "--model", "linear", "--learner", "single", *run)[0] == 0
    code, text = call("learn", more, "--resume", "--json", *run)
    assert code == 0, text
    assert json.loads(text)["rows"]["learned"] == 60
    assert call("learn", more, "--resume", *run)[0] == 0
    assert "read 60 = learned 60" in call("learn", "--resume", *run)[1]
    code, text = call("learn", "--resume", "--horizon", 3, *run)
    assert code == 1
    assert "started with another --horizon" in " ".join(text.split())


def test_decisions_go_on_with_a_new_file_and_a_place_for_them(tmp_path):
    log, later, out = tmp_path / "log.jsonl", tmp_path / "later.jsonl", tmp_path / "out.jsonl"
    rows = [{"age": number % 7, "arm": "ab"[number % 2], "reward": number % 2} for number in range(20)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    later.write_text('{"age": 3, "id": "x"}\n{"id": "x", "reward": 1}\n{"age": 4, "id": "y"}\n')
    run = ["--run", tmp_path / "run", "--no-report"]
    assert call("decide", log, "--model", "linear", *run)[0] == 0
    code, text = call("decide", later, "--resume", "--out", out, "--json", *run)
    assert code == 0, text
    assert {name: json.loads(text)["rows"][name] for name in ("logged", "decided", "rewarded")} == {
        "logged": 20,
        "decided": 2,
        "rewarded": 1,
    }
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["x", "y"]
    assert "started with another --policy" in " ".join(call("decide", "--resume", "--policy", "ucb", *run)[1].split())
    code, text = call("forecast", tmp_path / "run")
    assert code == 1
    assert "is a run of natkal decide" in " ".join(text.split())
