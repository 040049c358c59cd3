"""One rival at one setting on one stream."""

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.streams.scores import Forecast


class Attempt(NamedTuple):
    """A method, one of its settings, and the run that forecasts every row before learning it."""

    method: str
    setting: str
    run: Callable[[], Forecast]
