"""Inputs that are collinear, badly scaled, missing, or change their meaning."""

from collections.abc import Callable

import numpy as np

from benchmarks.hostile.base import ROWS, Maker, Random, Rows, inputs, replaced, smooth, time
from benchmarks.streams.stream import Columns, numbered

MIDDLE = ROWS // 2


def _spoilt(change: Callable[[np.ndarray, Random], np.ndarray | Columns]) -> Maker:
    """The plain regression; its targets come from the inputs before they are changed."""

    def make(rng: Random) -> Rows:
        x = inputs(rng)
        targets = smooth(x) + 0.5 * rng.normal(size=ROWS)
        changed = change(x, rng)
        return Rows(numbered(changed) if isinstance(changed, np.ndarray) else changed, targets)

    return make


def _scaled(first: float, second: float) -> Maker:
    """The first input in other units in the second half."""
    factors = np.where(np.arange(ROWS) < MIDDLE, first, second)
    return _spoilt(lambda x, rng: np.column_stack([x[:, 0] * factors, x[:, 1:]]))


FEATURES: dict[str, Maker] = {
    "-999 for a missing input": _spoilt(lambda x, rng: replaced(x, (rng.uniform(size=ROWS) < 0.1, 0), -999.0)),
    "an input's scale drops by 1e6": _scaled(1.0, 1e-6),
    "an input's scale rises by 1e6": _scaled(1.0, 1e6),
    "one input of 1e12": _spoilt(lambda x, rng: replaced(x, (MIDDLE, 0), 1e12)),
    "inputs with Cauchy tails": _spoilt(lambda x, rng: x * np.abs(rng.standard_cauchy(x.shape))),
    "inputs of size 1e-12 and 1e12": _spoilt(lambda x, rng: x * np.array([1e-12, 1e12, 1.0, 1e6, 1e-6])),
    "inputs with offset 1e9": _spoilt(lambda x, rng: x + 1e9),
    "a clock beside the inputs": _spoilt(lambda x, rng: np.column_stack([x, 1.7e9 + 60 * np.arange(ROWS)])),
}
COLUMNS: dict[str, Maker] = {
    "collinear inputs": _spoilt(lambda x, rng: np.column_stack([x, 2 * x[:, 0] + 1e-9 * x[:, 1], x.sum(axis=1)])),
    "ten copies of every input": _spoilt(lambda x, rng: np.tile(x, (1, 10))),
    "constant inputs": _spoilt(lambda x, rng: np.column_stack([x, np.zeros(ROWS), np.full(ROWS, 7e5)])),
    "a hundred irrelevant inputs": _spoilt(lambda x, rng: np.column_stack([x, rng.normal(size=(ROWS, 100))])),
    "inputs missing half of the time": _spoilt(lambda x, rng: replaced(x, rng.uniform(size=x.shape) < 0.5, np.nan)),
    "an input missing at first": _spoilt(lambda x, rng: replaced(x, (slice(MIDDLE), 0), np.nan)),
    "a column of row numbers": _spoilt(lambda x, rng: numbered(x) | {"id": np.arange(ROWS)}),
    "a column of words, all different": _spoilt(
        lambda x, rng: numbered(x) | {"name": np.array([f"w{number}" for number in range(ROWS)])}
    ),
}


def _drift(weight: np.ndarray) -> Maker:
    """The weight of the first input changes along the stream."""

    def make(rng: Random) -> Rows:
        x = inputs(rng)
        return Rows(numbered(x), weight * smooth(x) + 0.5 * rng.normal(size=ROWS))

    return make


def _swapped(rng: Random) -> Rows:
    x = inputs(rng)
    targets = smooth(x) + 0.5 * rng.normal(size=ROWS)
    return Rows(numbered(np.concatenate([x[:MIDDLE], x[MIDDLE:, ::-1]])), targets)


DRIFTS: dict[str, Maker] = {
    "abrupt drift": _drift(np.where(time() < 0.5, 1.0, -1.0)),
    "gradual drift": _drift(np.cos(np.pi * time())),
    "recurring drift": _drift(np.where(np.arange(ROWS) // 500 % 2, 1.0, -1.0)),
    "columns swapped": _swapped,
}
