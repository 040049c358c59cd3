"""`python -m benchmarks frontends`: cost of a row in river and scikit-learn, and what a bank gains."""

import csv
import gzip
import itertools
import math
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np

from natkal.data import digits

PARTS = ("one", "chunks", "learners")
FEATURES, ROWS, CHUNK, REPEATS = 10, 4000, 1000, 9
FLIGHTS = 3000


def run_part(part: str, report: Callable[[str], None]) -> dict[str, Any]:
    """One part's numbers."""
    report({"one": "one row at a time", "chunks": f"chunks of {CHUNK} rows", "learners": "one filter or a bank"}[part])
    if part == "learners":
        return {"rows": single_and_auto()}
    inputs, labels = _stream()
    return {"rows": one_at_a_time(inputs, labels) if part == "one" else in_chunks(inputs, labels)}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    found = []
    if "one" in results:
        title = f"One row of {FEATURES} features at a time: time of river's scaler and logistic regression = 1"
        found.append((title, results["one"]["rows"], ("what", "river_us", "natkal_us", "ratio", "goal")))
    if "chunks" in results:
        title = f"partial_fit on chunks of {CHUNK} rows: rows per second, river's learn_one = 1"
        found.append((title, results["chunks"]["rows"], ("what", "river_us", "natkal_us", "ratio", "goal")))
    if "learners" in results:
        title = "river's loop, each row predicted, then learned: mean log loss, and time of auto over single"
        columns = ("stream", "rows", "hidden", "single", "auto", "river", "time")
        found.append((title, results["learners"]["rows"], columns))
    return found


def single_and_auto() -> list[dict[str, Any]]:
    """One filter and a bank behind river's door, on the embedded streams, beside river's own linear model."""
    from river import linear_model, optim, preprocessing

    from natkal.river import KalmanClassifier

    def river_model(labels: set) -> Any:
        if len(labels) == 2:
            return preprocessing.StandardScaler() | linear_model.LogisticRegression()
        return preprocessing.StandardScaler() | linear_model.SoftmaxRegression(optim.SGD(0.1))

    found = []
    for name, stream, hidden in (("digits", _digits(), ()), ("flights", _flights(), ()), ("flights", _flights(), (8,))):
        losses: dict[str, Any] = {"river": ""}
        times = {}
        for learner in ("single", "auto"):
            _progressive(KalmanClassifier(hidden, learner=learner), stream)  # all is compiled now
            began = time.perf_counter()
            losses[learner] = _progressive(KalmanClassifier(hidden, learner=learner), stream)
            times[learner] = time.perf_counter() - began
        if not hidden:
            losses["river"] = _progressive(river_model({label for _, label in stream}), stream)
        rest = {"hidden": hidden[0] if hidden else 0, "time": times["auto"] / times["single"]}
        found.append({"stream": name, "rows": len(stream), **losses, **rest})
    return found


def _progressive(model: Any, stream: list[tuple[dict, Any]]) -> float:
    """Mean log loss; a class that was never seen, or given no chance, costs as if it had had one in a million."""
    total = 0.0
    for row, label in stream:
        total -= math.log(max(model.predict_proba_one(row).get(label, 0.0), 1e-6))
        model.learn_one(row, label)
    return total / len(stream)


def _digits() -> list[tuple[dict, Any]]:
    """At 4 x 4 pixels."""
    inputs, labels = digits()
    inputs = inputs.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    names = [f"pixel {i}" for i in range(16)]
    return [
        (dict(zip(names, map(float, row), strict=True)), int(label)) for row, label in zip(inputs, labels, strict=True)
    ]


def _flights() -> list[tuple[dict, Any]]:
    """The first flights of the year: numbers, the hour, and one feature for each carrier and airport of departure."""
    with (files("natkal.data") / "flights.csv.gz").open("rb") as packed, gzip.open(packed, "rt") as text:
        lines = list(itertools.islice((line for line in csv.DictReader(text) if line["late"]), FLIGHTS))
    numbers = ("distance", "temp", "wind", "precip", "visibility")
    values = {name: sorted({line[name] for line in lines}) for name in ("carrier", "origin")}
    stream = []
    for line in lines:
        row = {name: float(line[name]) for name in numbers if line[name]} | {"hour": float(line["scheduled"][11:13])}
        row |= {value: float(line[name] == value) for name, known in values.items() for value in known}
        stream.append((row, line["late"] == "yes"))
    return stream


def one_at_a_time(inputs: np.ndarray, labels: np.ndarray) -> list[dict[str, Any]]:
    """learn_one alone, and the loop of progressive validation: predict, then learn."""
    from natkal.river import KalmanClassifier

    rows = [{f"x{i}": float(value) for i, value in enumerate(row)} for row in inputs]
    targets = [bool(label) for label in labels]

    def learn(model: Any) -> None:
        for row, target in zip(rows, targets, strict=True):
            model.learn_one(row, target)
        model.predict_one(rows[0])  # whatever was put off is done now

    def predict_and_learn(model: Any) -> None:
        for row, target in zip(rows, targets, strict=True):
            model.predict_one(row)
            model.learn_one(row, target)

    found = []
    for name, work, goal in (("learn_one", learn, "<= 2"), ("predict_one and learn_one", predict_and_learn, "")):
        rival, own = _alternate(lambda work=work: work(_river_model()), lambda work=work: work(KalmanClassifier()))
        found.append(_row(name, rival, own, own / rival, goal))
    return found


def in_chunks(inputs: np.ndarray, labels: np.ndarray) -> list[dict[str, Any]]:
    """partial_fit of scikit-learn's interface, river row by row beside it, scikit-learn's own SGD for comparison."""
    from sklearn.linear_model import SGDClassifier

    from natkal.sklearn import KalmanClassifier

    rows = [{f"x{i}": float(value) for i, value in enumerate(row)} for row in inputs]
    targets = [bool(label) for label in labels]

    def river() -> None:
        model = _river_model()
        for row, target in zip(rows, targets, strict=True):
            model.learn_one(row, target)

    def chunks(make: Callable[[], Any]) -> Callable[[], None]:
        def work() -> None:
            model = make()
            for first in range(0, ROWS, CHUNK):
                part = slice(first, first + CHUNK)
                model.partial_fit(inputs[part], labels[part], classes=[0, 1])

        return work

    rival, own, sgd = _alternate(river, chunks(KalmanClassifier), chunks(lambda: SGDClassifier(loss="log_loss")))
    return [
        _row("KalmanClassifier.partial_fit", rival, own, rival / own, ">= 20"),
        _row("SGDClassifier.partial_fit (scikit-learn)", rival, sgd, rival / sgd, ""),
    ]


def _stream() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(ROWS, FEATURES))
    return inputs, (inputs @ rng.normal(size=FEATURES) + rng.logistic(size=ROWS) > 0).astype(int)


def _river_model() -> Any:
    from river import linear_model, preprocessing

    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def _alternate(*works: Callable[[], None]) -> list[float]:
    """The shortest time of each in seconds, measured in turns so that all see the same machine; one run to warm up."""
    times: list[list[float]] = [[] for _ in works]
    for repeat in range(REPEATS + 1):
        for own, work in zip(times, works, strict=True):
            began = time.perf_counter()
            work()
            if repeat:
                own.append(time.perf_counter() - began)
    return [min(own) for own in times]


def _row(what: str, rival: float, own: float, ratio: float, goal: str) -> dict[str, Any]:
    return {"what": what, "river_us": 1e6 * rival / ROWS, "natkal_us": 1e6 * own / ROWS, "ratio": ratio, "goal": goal}
