"""Thirteen tables that grow while they are learned: none may end in a traceback, none may be quietly wrong."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import natkal as nk
from natkal.cli import app
from natkal.settings.settings import Settings
from tests.app.serve.support import make_client, make_service

pytestmark = pytest.mark.float64
Table = list[dict[str, Any]]


# -- tables ------------------------------------------------------------------------------------------------------------


def numbers(count: int, columns: int, seed: int = 0) -> tuple[Table, np.ndarray]:
    """Rows of plain numbers, and a score of each of a hundred classes that depends on them."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, columns)).round(4)
    rows = [{f"x{column}": value for column, value in enumerate(row)} for row in values.tolist()]
    scores = values @ np.random.default_rng(1).normal(size=(columns, 100)) + rng.gumbel(size=(count, 100))
    return rows, scores


def classes_in_turn(known: Iterable[int], columns: int = 4) -> Table:
    """A row for each number: how many classes there are by then. The target is the best of them."""
    known = list(known)
    rows, scores = numbers(len(known), columns)
    return [row | {"y": f"c{score[:k].argmax()}"} for row, score, k in zip(rows, scores, known, strict=True)]


def columns_that_come(first: int, then: int, at: int, count: int) -> Table:
    """Numbers, of which most columns appear after some rows."""
    rows, scores = numbers(count, then)
    kept = [{f"x{c}": row[f"x{c}"] for c in range(first if number < at else then)} for number, row in enumerate(rows)]
    return [row | {"y": "yes" if score[0] > score[1] else "no"} for row, score in zip(kept, scores, strict=True)]


def categories_that_come(at: int, count: int) -> Table:
    """Two numbers and, after some rows, four columns of words."""
    rows, scores = numbers(count, 2)
    words = np.random.default_rng(2).integers(5, size=(count, 4)).tolist()
    return [
        row | ({f"w{c}": f"word {value}" for c, value in enumerate(word)} if number >= at else {}) | {"y": float(s[0])}
        for number, (row, word, s) in enumerate(zip(rows, words, scores, strict=True))
    ]


def step(count: int, at: int, before: int, after: int) -> list[int]:
    """So many classes before a row and so many from it on."""
    return [before] * at + [after] * (count - at)


TWO_TARGETS = [row | {"z": row["x0"] + row["x1"]} for row in classes_in_turn(step(300, 150, 2, 4))]

FILES: dict[str, Any] = {
    "two classes, then four": (classes_in_turn(step(300, 200, 2, 4)), []),
    "one more class every 25 rows, up to 12": (classes_in_turn(2 + number // 25 for number in range(300)), []),
    "8 classes, then 20": (classes_in_turn(step(300, 150, 8, 20)), []),
    "2 classes, then 100, one filter": (classes_in_turn(step(400, 150, 2, 100)), ["--learner", "single"]),
    "4 columns, then 80": (columns_that_come(4, 80, at=150, count=300), []),
    "four columns of words": (categories_that_come(at=150, count=300), []),
    "54 columns, seven classes in turn": (classes_in_turn((2 + number // 40 for number in range(240)), 54), []),
    "with 1 MB of memory": (classes_in_turn(step(300, 150, 2, 4)), ["--memory", "1MB"]),
    "with 50 microseconds a row": (classes_in_turn(step(300, 150, 2, 4)), ["--budget", "50"]),
    "two targets": (TWO_TARGETS, ["--target", "z"]),
}
SLOW = {
    "8 classes, then 20",
    "4 columns, then 80",
    "four columns of words",
    "one more class every 25 rows, up to 12",
    "54 columns, seven classes in turn",
    "with 1 MB of memory",
}


# -- files -------------------------------------------------------------------------------------------------------------


def marked(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))


@pytest.mark.parametrize("name", [marked(name) for name in FILES])
def test_a_file(name: str, tmp_path: Path) -> None:
    table, options = FILES[name]
    data, run = tmp_path / "d.jsonl", tmp_path / "run"
    data.write_text("".join(json.dumps(row) + "\n" for row in table))
    command = ["learn", str(data), "--target", "y", *options, "--sample", "100", "--run", str(run)]
    answer = CliRunner().invoke(app, [*command, "--no-report", "--json"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["rows"] == {"read": len(table), "learned": len(table), "rejected": 0, "skipped": 0}
    check_answers(nk.load_run(run).predict(table[-30:]), {row["y"] for row in table})


def check_answers(told: Table, labels: set[Any]) -> None:
    """Finite numbers; of each target with classes one probability for each class that was learned, 1 in all."""
    numbers = [value for row in told for value in row.values() if isinstance(value, float)]
    assert numbers
    assert np.isfinite(numbers).all()
    for row in told:
        by_class = {name.partition("p(")[2][:-1]: value for name, value in row.items() if "p(" in name}
        if by_class:
            assert by_class.keys() == labels
            assert sum(by_class.values()) == pytest.approx(1, abs=1e-9)


# -- the other doors ---------------------------------------------------------------------------------------------------

FRESH = classes_in_turn(step(200, 100, 2, 4))


def test_partial_fit_with_a_new_class() -> None:
    pytest.importorskip("sklearn")
    from natkal.sklearn import KalmanClassifier

    inputs = np.array([[row[f"x{column}"] for column in range(4)] for row in FRESH])
    labels = np.array([row["y"] for row in FRESH])
    model = KalmanClassifier()
    for start in range(0, len(inputs), 20):
        model.partial_fit(inputs[start : start + 20], labels[start : start + 20])
    found = model.predict_proba(inputs)
    assert sorted(model.classes_) == ["c0", "c1", "c2", "c3"]
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-9)


def test_learn_one_with_a_third_class() -> None:
    pytest.importorskip("river")
    from natkal.river import KalmanClassifier

    model = KalmanClassifier()
    for row in FRESH:
        inputs = {name: value for name, value in row.items() if name != "y"}
        found = model.predict_proba_one(inputs)
        assert not found or sum(found.values()) == pytest.approx(1, abs=1e-9)
        model.learn_one(inputs, row["y"])
    assert model.predict_proba_one(FRESH[0]).keys() == {"c0", "c1", "c2", "c3"}


def test_one_posted_row_with_a_new_class(tmp_path: Path) -> None:
    """The server goes on learning, and the class is one of those it tells."""
    schema = tmp_path / "first.jsonl"
    schema.write_text("".join(json.dumps(row) + "\n" for row in FRESH[:50]))
    service = make_service(tmp_path, Settings(targets=("y",)), schema)
    try:
        client = make_client(service)
        assert client.post("/learn", json=FRESH[:50]).status_code == 200
        new = next(row for row in FRESH if row["y"] == "c2")
        assert client.post("/learn", json=new).status_code == 200
        answer = client.post("/learn", json=FRESH[50:90])
        assert answer.status_code == 200, answer.text
        told = client.post("/predict", json={name: value for name, value in FRESH[0].items() if name != "y"}).json()
        assert "c2" in json.dumps(told)
        assert client.get("/state").json()["rows"]["learned"] == 91
    finally:
        service.close()
