"""What hostile streams are made of: a plain problem, which each of them spoils in one way."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.streams.stream import Columns, numbered

ROWS = 3_000
INPUTS = 5
Random = np.random.Generator


class Rows(NamedTuple):
    """Columns, targets and the options that the command line gets with them."""

    columns: Columns
    targets: np.ndarray
    options: tuple[str, ...] = ()


Maker = Callable[[Random], Rows]


def inputs(rng: Random, rows: int = ROWS) -> np.ndarray:
    """(rows, 5) standard normal numbers."""
    return rng.normal(size=(rows, INPUTS))


def smooth(x: np.ndarray) -> np.ndarray:
    """A function of size 2 with a linear and a curved part."""
    return 2 * x[:, 0] - x[:, 1] + np.sin(2 * x[:, 2])


def numbers(rng: Random, change: Callable[[np.ndarray], np.ndarray]) -> Rows:
    """The plain regression, noise 0.5, its targets changed."""
    x = inputs(rng)
    return Rows(numbered(x), change(smooth(x) + 0.5 * rng.normal(size=ROWS)))


def labels(x: np.ndarray, rng: Random) -> np.ndarray:
    """Two classes by a logistic law of the smooth function."""
    return (smooth(x) + rng.logistic(size=len(x)) > 0).astype(int)


def replaced(values: np.ndarray, places: object, by: object) -> np.ndarray:
    """A copy with other values at some places."""
    changed = np.array(values, float)
    changed[places] = by  # pyright: ignore[reportArgumentType, reportCallIssue]
    return changed


def time() -> np.ndarray:
    """The row number over the number of rows."""
    return np.arange(ROWS) / ROWS
