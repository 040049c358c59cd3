"""The numbers of a row as they are."""

import dataclasses
from collections.abc import Sequence

from natkal.typing import Array


@dataclasses.dataclass(frozen=True)
class Columns:
    """The numbers themselves."""

    name = "linear"

    def size(self, columns: int) -> int:
        """As many."""
        return columns

    def names(self, columns: Sequence[str]) -> list[str]:
        """Theirs."""
        return list(columns)

    def __call__(self, features: Array) -> Array:
        """The same."""
        return features


COLUMNS = Columns()
