"""Whole runs: exact accounting, garbage that leaves no trace, and kills that leave none either."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.reading.source import Source
from natkal.runs import checkpoint
from natkal.runs import session as sessions
from natkal.runs.session import Session
from tests.app.garbage import KINDS, with_garbage
from tests.app.support import (
    COLUMNS,
    arrays,
    csv_lines,
    csv_text,
    learn,
    learned,
    resume,
    same_arrays,
    settings,
    table,
)


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".csv", ".jsonl")}


def balanced(session: Session) -> bool:
    counts = session.counts
    return counts.read == counts.learned + counts.rejected + counts.skipped


@pytest.fixture
def small_chunks(monkeypatch):
    """Many small blocks, as a large file would have."""
    from natkal.reading import lines

    monkeypatch.setattr(lines, "CHUNK", 1500)


def test_garbage_is_counted_and_leaves_no_trace(tmp_path, small_chunks):
    values = table(600)
    clean, dirty = tmp_path / "clean.csv", tmp_path / "dirty.csv"
    clean.write_text(csv_text(values))
    planted = with_garbage(csv_lines(values), dirty, COLUMNS, every=5, seed=0)
    assert len(KINDS) >= 12
    first = learn(tmp_path / "a", clean, classes=("0", "1"))
    second = learn(tmp_path / "b", dirty, classes=("0", "1"))
    assert balanced(first)
    assert balanced(second)
    assert (first.counts.learned, first.counts.rejected) == (600, 0)
    assert (second.counts.learned, second.counts.rejected) == (600, len(planted))
    assert same_arrays(learned(tmp_path / "a"), learned(tmp_path / "b"))
    rejects = [json.loads(line) for line in (tmp_path / "b" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["line"] for reject in rejects] == planted
    assert all(reject["reason"] for reject in rejects)
    assert (tmp_path / "a" / "metrics.csv").read_bytes() == (tmp_path / "b" / "metrics.csv").read_bytes()


def test_mostly_garbage_stops(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(csv_text(table(100)) + "x\n" * 50)
    with pytest.raises(StreamError, match="50 of 150 rows were rejected, more than --max-rejects 20"):
        learn(tmp_path / "run", path, max_rejects=20)


def test_rows_without_a_label_are_predicted_and_skipped(tmp_path):
    lines = csv_lines(table(100))
    lines[40:50] = [line.rpartition(",")[0] + "," for line in lines[40:50]]
    (tmp_path / "d.csv").write_text("\n".join([COLUMNS, *lines, "", ""]))
    session = learn(tmp_path / "run", tmp_path / "d.csv", predictions=str(tmp_path / "p.csv"))
    assert vars(session.counts) == {"read": 101, "learned": 90, "rejected": 0, "skipped": 11}
    written = (tmp_path / "p.csv").read_text().splitlines()
    assert written[0] == "line,observed,predicted,p(0),p(1),p(other)"
    assert len(written) == 101
    assert written[41].split(",")[:2] == ["42", ""]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet", "arrow", "csv.zst"])
def test_every_format_gives_the_same_bits(tmp_path, ending):
    values = table(150)
    (tmp_path / "plain.csv").write_text(csv_text(values))
    path = tmp_path / f"d.{ending}"
    names = COLUMNS.split(",")
    if ending == "csv.gz":
        path.write_bytes(gzip.compress(csv_text(values).encode()))
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in values.tolist()))
    elif ending == "csv":
        path.write_text(csv_text(values))
    else:
        import pyarrow as arrow
        from pyarrow import feather, parquet

        content = arrow.table(dict(zip(names, values.T, strict=True)))
        if ending == "parquet":
            parquet.write_table(content, path)
        elif ending == "arrow":
            feather.write_feather(content, path)
        else:
            with arrow.output_stream(str(path), compression="zstd") as stream:
                stream.write(csv_text(values).encode())
    learn(tmp_path / "a", tmp_path / "plain.csv")
    session = learn(tmp_path / "b", path)
    assert session.counts.learned == 150
    assert same_arrays(learned(tmp_path / "a"), learned(tmp_path / "b"))


def test_files_of_a_directory_are_one_stream(tmp_path):
    values = table(150)
    (tmp_path / "whole.csv").write_text(csv_text(values))
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "1.csv").write_text(csv_text(values[:70]))
    (parts / "2.csv").write_text(csv_text(values[70:]))
    from natkal.reading.source import find_files

    learn(tmp_path / "a", tmp_path / "whole.csv")
    learn(tmp_path / "b", [Path(name) for name in find_files([str(parts)])])
    assert same_arrays(learned(tmp_path / "a"), learned(tmp_path / "b"))
    (parts / "3.csv").write_text("a,b,other,y\n1,2,3,0\n")
    with pytest.raises(StreamError, match=r"3\.csv: has no column 'c'"):
        Source(find_files([str(parts)]))


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


@pytest.mark.parametrize("ending", ["csv", pytest.param("csv.gz", marks=pytest.mark.slow)])
def test_killed_anywhere_and_resumed_the_bits_are_the_same(tmp_path, monkeypatch, small_chunks, ending):
    """Twenty kills at random points of the code that writes, reads and learns, each leaving what a kill leaves."""
    values = table(500)
    dirty = tmp_path / "plain.csv"
    with_garbage(csv_lines(values), dirty, COLUMNS, every=9, seed=1)
    data = tmp_path / f"d.{ending}"
    data.write_bytes(gzip.compress(dirty.read_bytes()) if ending == "csv.gz" else dirty.read_bytes())
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    learn(whole, data, predictions=str(whole / "p.csv"), label_delay=3)
    rng = np.random.default_rng(0)
    kills = 0
    chance = [0.0]

    def fragile(function):
        def call(*arguments, **options):
            nonlocal kills
            if rng.random() < chance[0]:
                kills += 1
                raise Killed
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(sessions.Appender, "write", fragile(sessions.Appender.write))
    monkeypatch.setattr(os, "replace", fragile(os.replace))
    monkeypatch.setattr(os, "fsync", fragile(os.fsync))
    monkeypatch.setattr(Session, "_settle", fragile(Session._settle))
    options = {"checkpoint_rows": 40, "checkpoint_seconds": None}
    begun = False
    while True:
        chance[0] = 0.0
        first: list = []
        if begun:
            session, _ = Session.resume(cut)
            source = Source([str(data)], session.position)
        else:
            cut.mkdir(exist_ok=True)
            source = Source([str(data)])
            changes = {"predictions": str(cut / "p.csv"), "label_delay": 3}
            session, first = Session.begin(cut, settings(**changes), source)
        chance[0] = 0.06 if kills < 10 else 0.0
        try:
            session.run(source, first, **options)
            break
        except Killed:
            begun = (cut / "checkpoint.nk").exists() or (cut / "checkpoint.previous.nk").exists()
    assert kills == 10
    assert outputs(cut) == outputs(whole)
    assert same_arrays(arrays(cut), arrays(whole))


def test_twenty_sigkills_of_real_processes(tmp_path):
    """One run killed twenty times and resumed each time; two hundred runs killed once are part of `make soak`."""
    compiled_once = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-m", "tests.app.kills", str(tmp_path), "20"]
    here = Path(__file__).parents[2]
    answer = subprocess.run(command, cwd=here, env=os.environ | compiled_once, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {"killed": 20, "equal": True, "read": 60_000}


def test_more_rows_later_go_on_where_the_run_ended(tmp_path):
    values = table(300)
    (tmp_path / "whole.csv").write_text(csv_text(values))
    grown = tmp_path / "grown.csv"
    grown.write_text(csv_text(values[:170]))
    learn(tmp_path / "a", tmp_path / "whole.csv")
    learn(tmp_path / "b", grown)
    grown.write_text(csv_text(values))
    resume(tmp_path / "b", grown)
    assert same_arrays(arrays(tmp_path / "a"), arrays(tmp_path / "b"))
    assert outputs(tmp_path / "a") == outputs(tmp_path / "b")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"model": "gru:2", "sequence": "s"}, marks=pytest.mark.slow),
        {"model": "gru:2", "sequence": "s", "key": "k"},
        {"key": "k", "label_delay": 4},
        {"learner": "auto", "budget": "fast"},
    ],
)
def test_memories_keys_and_late_labels_resume_exactly(tmp_path, small_chunks, changes):
    lines = [f"s{i // 30},k{i * i % 3},{line}" for i, line in enumerate(csv_lines(table(200)))]
    text = "\n".join([f"s,k,{COLUMNS}", *lines]) + "\n"
    data = tmp_path / "d.csv"
    data.write_text(text)
    changes = {"features": ("a", "b", "c"), "classes": ("0", "1"), **changes}
    whole = learn(tmp_path / "a", data, **changes)
    assert whole.counts.learned == 200
    stops = iter([False, True])
    learn(tmp_path / "b", data, stop=lambda: next(stops), **changes)
    session = resume(tmp_path / "b", data)
    assert 0 < checkpoint.read(tmp_path / "b" / checkpoint.PREVIOUS)[0]["counts"]["read"] < 200
    assert session.counts == whole.counts
    assert same_arrays(arrays(tmp_path / "a"), arrays(tmp_path / "b"))
    assert outputs(tmp_path / "a") == outputs(tmp_path / "b")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sequence": "a"}, "--sequence: is for models with memory"),
        ({"model": "gru:4", "label_delay": 3}, "--label-delay: a model with memory must learn the rows in their order"),
        ({"model": "lstm:0"}, "model: write lstm:8"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, changes, complaint):
    (tmp_path / "d.csv").write_text(csv_text(table(60)))
    with pytest.raises(StreamError, match=complaint):
        learn(tmp_path / "run", tmp_path / "d.csv", **changes)


def test_labels_that_come_later_under_their_id(tmp_path):
    lines = csv_lines(table(100))
    rows = [f"{i},{line.rpartition(',')[0]}," for i, line in enumerate(lines)]
    labels = [f"{i},,,,{line.rpartition(',')[2]}" for i, line in enumerate(lines)]
    order = [text for block in range(0, 100, 10) for text in rows[block : block + 10] + labels[block : block + 10]]
    (tmp_path / "late.csv").write_text("\n".join(["id," + COLUMNS, *order]) + "\n")
    session = learn(tmp_path / "run", tmp_path / "late.csv", id="id", task="binary", classes=("0", "1"))
    assert vars(session.counts) == {"read": 200, "learned": 100, "rejected": 0, "skipped": 100}
    assert not session.held
    part = session.metrics.parts[0]
    assert part.scored == 100
    assert part.totals["log_loss"] < part.totals["baseline_log_loss"]


def test_steps_that_could_not_be_taken_are_told_at_the_end(tmp_path):
    (tmp_path / "d.csv").write_text(csv_text(table(60)))
    session = learn(tmp_path / "run", tmp_path / "d.csv")
    assert session.warnings() == []
    (own,) = session.learner.state
    session.learner.state = (own._replace(bank=own.bank._replace(reseeded=own.bank.reseeded + 60)),)
    (said,) = session.warnings()
    assert said.startswith("60 times in 60 rows a filter could not take its step")
