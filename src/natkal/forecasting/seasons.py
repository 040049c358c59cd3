"""The periods of a series, each with its evidence: a day and a week, a week and a year.

The first period is that of `tables/learner/period.py`. What the mean of its places leaves of the values is looked at in
the same way: a period in there, longer than the first, is the second. If the first one hides a shorter one (a week
whose days are nearly alike), the shorter one is the peak of the autocorrelation that comes before it.
"""

import numpy as np

from natkal.tables.learner.period import SHORTEST_SERIES, find_period

DAYS = (24, 48, 96, 144, 288)
EARLY, EARLY_STEP, STEPS_PER_DOUBLING = 144, 12, 8
"""Periods are looked for every 12 values up to 144 of them, and then 8 times until their number has doubled."""


def looked_at(count: int) -> int:
    """How many of the first values periods are looked for in: those of the last time that they were looked for."""
    step = EARLY_STEP if count <= EARLY else max(EARLY_STEP, (1 << (count.bit_length() - 1)) // STEPS_PER_DOUBLING)
    return count - count % step


def find_seasons(values: np.ndarray) -> tuple[int, ...]:
    """The periods in rows, the shorter first: none, one or two."""
    values = values[: looked_at(len(values))]
    if len(values) < SHORTEST_SERIES:
        return ()
    first = find_period(values)
    if not first:
        return ()
    second = find_period(without(values, first))
    if first in DAYS and len(values) >= 3 * 7 * first:
        second = second if second > first else 7 * first
    elif first % 7 == 0 and first // 7 in DAYS:
        second = first // 7
    return tuple(sorted({first, second} - {0}))


def without(values: np.ndarray, period: int) -> np.ndarray:
    """The values less a line and the mean at each place of the period."""
    time = np.arange(len(values))
    level = values - np.polyval(np.polyfit(time, values, 1), time)
    places = time % period
    means = np.bincount(places, level, minlength=period) / np.bincount(places, minlength=period)
    return level - means[places]
