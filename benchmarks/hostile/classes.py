"""Classes that come sorted, late, rarely, or against the learner."""

from collections.abc import Callable

import numpy as np

from benchmarks.hostile.base import ROWS, Maker, Random, Rows, inputs, labels, smooth
from benchmarks.streams.stream import numbered

MIDDLE = ROWS // 2
RARE = 1e-3
LATE = 0.9


def _given(draw: Callable[[Random, np.ndarray], np.ndarray]) -> Maker:
    """Labels as a function of the inputs."""

    def make(rng: Random) -> Rows:
        x = inputs(rng)
        return Rows(numbered(x), draw(rng, x))

    return make


def _against_the_majority() -> np.ndarray:
    """Each label is the one that was rarer so far."""
    found = np.zeros(ROWS, int)
    for row in range(1, ROWS):
        found[row] = int(2 * found[:row].sum() < row)
    return found


def _sorted(rng: Random) -> Rows:
    x = inputs(rng)
    y = labels(x, rng)
    order = np.argsort(y, kind="stable")
    return Rows(numbered(x[order]), y[order])


def _many(rng: Random) -> Rows:
    """50 classes, a cluster for each."""
    y = rng.integers(50, size=ROWS)
    centres = 3 * rng.normal(size=(50, 5))
    return Rows(numbered(centres[y] + rng.normal(size=(ROWS, 5))), np.array([f"c{label}" for label in y]))


def _late(rng: Random, x: np.ndarray) -> np.ndarray:
    """A third class in the last tenth."""
    late = (np.arange(ROWS) > LATE * ROWS) & (x[:, 3] > 0)
    return np.array(["a", "b", "c"])[np.where(late, 2, labels(x, rng))]


ORDERS: dict[str, Maker] = {
    "sorted labels": _sorted,
    "blocks of 100 equal labels": _given(lambda rng, x: np.arange(ROWS) // 100 % 2),
    "alternating labels": _given(lambda rng, x: np.arange(ROWS) % 2),
    "always the rarer label": _given(lambda rng, x: _against_the_majority()),
    "one label, then the other": _given(lambda rng, x: (np.arange(ROWS) >= MIDDLE).astype(int)),
    "a class that comes late": _given(_late),
    "labels flip for good": _given(lambda rng, x: labels(x, rng) ^ (np.arange(ROWS) >= MIDDLE)),
    "labels flip every 500 rows": _given(lambda rng, x: labels(x, rng) ^ (np.arange(ROWS) // 500 % 2)),
}
LABELS: dict[str, Maker] = {
    "one label in a thousand": _given(lambda rng, x: (rng.uniform(size=ROWS) < RARE).astype(int)),
    "rare and predictable": _given(lambda rng, x: (x[:, 0] > 3.0).astype(int)),
    "50 classes": _many,
    "exclusive or": _given(lambda rng, x: ((x[:, 0] > 0) ^ (x[:, 1] > 0)).astype(int)),
    "40 percent of labels wrong": _given(
        lambda rng, x: (smooth(x) > 0).astype(int) ^ (rng.uniform(size=ROWS) < 0.4).astype(int)
    ),
    "labels of noise alone": _given(lambda rng, x: rng.integers(2, size=ROWS)),
    "ten classes of noise alone": _given(lambda rng, x: np.array(list("abcdefghij"))[rng.integers(10, size=ROWS)]),
    "perfectly separable": _given(lambda rng, x: (smooth(x) > 0).astype(int)),
    "separable, inputs of size 1e-9 and 1e9": lambda rng: _units(rng),
}


def _units(rng: Random) -> Rows:
    x = inputs(rng)
    return Rows(numbered(x * np.array([1e-9, 1e9, 1.0, 1e9, 1e-9])), (smooth(x) > 0).astype(int))
