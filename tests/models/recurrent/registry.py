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


WITH_MATRICES = ("tanh", "linear", "leaky", "gru", "lstm")
DIAGONAL = ("diagonal", "lru", "rtu")
ALL = WITH_MATRICES + DIAGONAL

SENSITIVITIES = [
    Entry("rtrl", lambda seed: nk.sensitivity.rtrl(), "exact", ALL),
    Entry("snap(many)", lambda seed: nk.sensitivity.snap(UNITS), "exact", ALL),
    Entry("diagonal", lambda seed: nk.sensitivity.diagonal(), "exact", DIAGONAL),
    Entry("snap(1), diagonal cells", lambda seed: nk.sensitivity.snap(1), "exact", DIAGONAL),
    Entry("truncated(long)", lambda seed: nk.sensitivity.truncated(10), "exact", ALL),
    Entry("truncated(2)", lambda seed: nk.sensitivity.truncated(2), "biased", ALL),
    Entry("snap(1)", lambda seed: nk.sensitivity.snap(1), "biased", WITH_MATRICES),
    Entry("immediate", lambda seed: nk.sensitivity.immediate(), "biased", ALL),
    Entry("uoro", nk.sensitivity.uoro, "unbiased", ALL),
    Entry("nobacktrack", nk.sensitivity.nobacktrack, "unbiased", ALL),
    Entry("kronecker_rtrl", nk.sensitivity.kronecker_rtrl, "unbiased", WITH_MATRICES),
]


def cell(name: str) -> Any:
    return getattr(nk.cells, name)(UNITS)
