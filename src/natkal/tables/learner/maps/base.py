"""The seam of maps."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from natkal.typing import Array


@runtime_checkable
class Map(Protocol):
    """A pure function of the numbers of a row; equal ones are the same, so that programs made of them are shared."""

    @property
    def name(self) -> str:
        """As members and groups are named."""
        ...

    def size(self, columns: int) -> int:
        """How many numbers it makes of so many."""
        ...

    def names(self, columns: Sequence[str]) -> list[str]:
        """A name for each of them, of the columns that it depends on."""
        ...

    def __call__(self, features: Array) -> Array:
        """The numbers that the filter sees; what columns that come later add is last."""
        ...


def drawn(seed: int, stream: int, rows: int, columns: int, fan_in: int) -> np.ndarray:
    """Normal numbers of variance 1/fan-in; row i does not depend on how many rows there are."""
    parts = [np.random.default_rng((seed, stream, row)).normal(size=columns) for row in range(rows)]
    return np.stack(parts) / np.sqrt(fan_in)
