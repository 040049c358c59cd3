"""Regression tables of the UCI repository, from the folder that the environment variable `NATKAL_UCI` names.

The folder holds NAME.csv.gz with a header; the last column is the target `y`. The data stay outside this repository.
Rows keep the order of the file.

With outliers (WoLF: Duran-Martin et al. 2024, section 4.1, as in its published code): the first tenth of the rows is
left out, the rest shuffled; every column is scaled by the range of the first tenth of what is left; each target is
replaced by -50 or 50 with probability 0.1. The score is the root of the median squared error before learning each row.
"""

import csv
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.streams.stream import Stream

NAMES = ("concrete", "kin8nm", "power-plant", "protein-tertiary-structure", "wine-quality-red", "yacht")
OUTLIER_SHARE, OUTLIER_SIZE = 0.1, 50.0
MOST_ROWS = 20_000
"""A table with outliers is cut here: many rivals are slow."""
PUBLISHED = {
    "concrete": {"EKF": 1.726, "Adam": 0.666, "best robust filter": 0.0894},
    "kin8nm": {"EKF": 0.741, "Adam": 0.410, "best robust filter": 0.0885},
    "power-plant": {"EKF": 0.567, "Adam": 0.389, "best robust filter": 0.0485},
    "protein-tertiary-structure": {"EKF": 0.498, "Adam": 0.329, "best robust filter": 0.191},
}
"""WoLF, root median squared error with outliers: a ReLU network of 20 units, tuned, mean of 100 runs."""


def _columns(name: str) -> dict[str, np.ndarray]:
    folder = os.environ.get("NATKAL_UCI")
    if not folder:
        raise SystemExit("set NATKAL_UCI to the folder of the UCI tables (concrete.csv.gz, kin8nm.csv.gz, ...)")
    with gzip.open(Path(folder) / f"{name}.csv.gz", "rt") as file:
        header, *rows = csv.reader(file)
    return {name: _numbers(column) for name, column in zip(header, zip(*rows, strict=True), strict=True)}


def _numbers(texts: tuple[str, ...]) -> np.ndarray:
    """Whole numbers stay whole."""
    try:
        return np.array(texts, np.int64)
    except ValueError:
        return np.array(texts, float)


def _plain(name: str) -> Stream:
    columns = _columns(name)
    targets = columns.pop("y")
    return Stream(f"uci {name}", "regression", columns, targets)


def _with_outliers(name: str) -> Stream:
    columns = _columns(name)
    values = np.array(list(columns.values()), float).T
    rng = np.random.default_rng(0)
    left = rng.permutation(values[len(values) // 10 :])[:MOST_ROWS]
    first = left[: len(values) // 10]
    low, spread = first.min(axis=0), np.ptp(first, axis=0)
    scaled = (left - low) / np.where(spread > 0, spread, 1.0)
    targets = scaled[:, -1]
    replaced = rng.uniform(size=len(targets)) < OUTLIER_SHARE
    targets[replaced] = rng.choice([-OUTLIER_SIZE, OUTLIER_SIZE], size=replaced.sum())
    inputs = dict(zip(list(columns)[:-1], scaled[:, :-1].T, strict=True))
    return Stream(f"uci {name}, outliers", "regression", inputs, targets)


UCI: dict[str, Callable[[], Stream]] = {f"uci {name}": lambda name=name: _plain(name) for name in NAMES}
OUTLIERS: dict[str, Callable[[], Stream]] = {
    f"uci {name}, outliers": lambda name=name: _with_outliers(name) for name in PUBLISHED
}
