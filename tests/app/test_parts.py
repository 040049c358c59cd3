"""What survives a restart: every part of a run comes back as it was."""

import json

import jax
import numpy as np
import pytest

from natkal.errors import CheckpointError
from natkal.reading.source import Source
from natkal.runs import checkpoint
from natkal.runs.folder import chain, take_over
from natkal.runs.session import Session
from tests.app.support import settings

pytestmark = pytest.mark.float64

RUNS = {
    "ids": {"key": "k", "id": "i"},
    "delay": {"label_delay": 3, "past": "1"},
    "forecasts": {"horizon": 2, "past": "1", "learner": "auto", "budget": "fast"},
    "memory": {"model": "gru:2", "sequence": "s", "features": ("a", "b")},
}


def data(folder):
    rng = np.random.default_rng(0)
    path = folder / "d.jsonl"
    rows = []
    for at in range(90):
        row = {"i": f"id {at}", "k": f"k{at % 2}", "s": f"s{at // 20}", "a": at, "b": rng.normal(), "y": rng.normal()}
        if at >= 70:
            row["late"] = 1.0
        rows.append(row if at % 9 else {name: cell for name, cell in row.items() if name != "y"})
    rows.append({"i": "x", "a": "not a number"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def packed(session):
    header, arrays = session.stored()
    return json.loads(json.dumps(header)), {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of each run: as it began, as it was saved while labels were awaited, and as it comes back."""
    found = {}
    with jax.enable_x64(True):
        for name, changes in RUNS.items():
            folder = tmp_path_factory.mktemp(name)
            source = Source([str(data(folder))])
            session, first = Session.begin(folder / "run", settings(**changes), source)
            begun = packed(session)
            take_over(session)
            for rows in chain(first, source):
                session.take(rows)
            session.ended, session.offsets["topic[0]"] = True, 7
            if name == "ids":
                session.early["a label without its row"] = np.array([1.0])
            session.save()
            session.close_outputs()
            found[name] = (begun, packed(session), packed(Session.resume(folder / "run")[0]))
    return found


@pytest.mark.parametrize("name", RUNS)
def test_every_part_comes_back(runs, name):
    _, left, again = runs[name]
    assert again == left


def test_every_part_was_changed(runs):
    """Otherwise the test above says nothing of it."""
    parts, changed = set(), set()
    for (header, arrays), (later_header, later_arrays), _ in runs.values():
        for part in header:
            parts.add(part)
            own = {name: array for name, array in later_arrays.items() if name.startswith(f".{part}")}
            if later_header[part] != header[part] or own != {name: arrays.get(name) for name in own}:
                changed.add(part)
    assert parts - changed == {"files", "predicted"}  # these two are as the run began


@pytest.mark.parametrize("part", ["counts", "position", "held", "queue", "metrics", "clock", "outputs", "predicted"])
def test_a_part_that_is_not_what_it_says_is_refused(tmp_path, part):
    source = Source([str(data(tmp_path))])
    session, first = Session.begin(tmp_path / "run", settings(), source)
    session.run(source, first)
    header, arrays = checkpoint.read(tmp_path / "run" / checkpoint.CURRENT)
    for wrong in (7, "text", [[1]], {"a": [None]}):
        checkpoint.remove(tmp_path / "run")
        checkpoint.write(tmp_path / "run", header | {part: wrong}, arrays)
        with pytest.raises(CheckpointError):
            Session.resume(tmp_path / "run")
