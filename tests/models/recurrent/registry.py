"""Every cell and every sensitivity. A new one is one line here and inherits every check."""

from collections.abc import Callable
from typing import Any, NamedTuple

import natkal as nk

UNITS = 3


class Entry(NamedTuple):
    """A sensitivity, how it is exact or not over a stretch of fewer than ten steps, and the cells it takes."""

    name: str
    build: Callable[[int], Any]
    kind: str
    cells: tuple[str, ...]


ALL = ("tanh", "linear", "leaky", "gru", "lstm", "diagonal")
WITH_MATRICES = ALL[:-1]

SENSITIVITIES = [
    Entry("rtrl", lambda seed: nk.rtrl(), "exact", ALL),
    Entry("snap(many)", lambda seed: nk.snap(UNITS), "exact", ALL),
    Entry("truncated(long)", lambda seed: nk.truncated(10), "exact", ALL),
    Entry("truncated(2)", lambda seed: nk.truncated(2), "biased", ALL),
    Entry("snap(1)", lambda seed: nk.snap(1), "biased", WITH_MATRICES),
    Entry("immediate", lambda seed: nk.immediate(), "biased", ALL),
    Entry("uoro", nk.uoro, "unbiased", ALL),
    Entry("nobacktrack", nk.nobacktrack, "unbiased", ALL),
    Entry("kronecker_rtrl", nk.kronecker_rtrl, "unbiased", WITH_MATRICES),
]


def cell(name: str) -> Any:
    return getattr(nk.cells, name)(UNITS)
