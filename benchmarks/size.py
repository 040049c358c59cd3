"""Sizes of a benchmark: those of its figures, or with `--smoke` so small that a run only shows that it runs."""

import os
from typing import TypeVar

T = TypeVar("T")
VARIABLE = "NATKAL_SMOKE"
"""Set to 1 by `--smoke`, before a benchmark is imported, and for the processes that it starts."""


def sized(full: T, smoke: T) -> T:
    """The size of a figure, or the one that shows that it runs."""
    return smoke if os.environ.get(VARIABLE) == "1" else full
