"""The periods of a series: a day and a week, a week and a year, one of them, or none.

The first period is that of `tables/learner/period.py`. What the mean of its places leaves of the values is looked at in
the same way: a period in there is the second. A period that may be a day (24, 48, 96, .. rows) has a week of seven for
its second where none is found and three of them have gone by; one that may be a week has its day. Periods are tried,
not believed: each has candidates of its own, which count as far as they come true.
"""

import numpy as np

from natkal.tables.learner.period import SHORTEST_SERIES, find_period

DAYS = (24, 48, 96, 144, 288)
"""Rows of a day, of an hour, half of one, 15, 10 or 5 minutes each."""
WEEK = 7
WEEKS = 3
"""So many weeks must have gone by."""
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
    if first in DAYS and len(values) >= WEEKS * WEEK * first:
        second = second if second > first else WEEK * first
    elif first % WEEK == 0 and first // WEEK in DAYS:
        second = first // WEEK
    return tuple(sorted({first, second} - {0}))


def without(values: np.ndarray, period: int) -> np.ndarray:
    """The values less a line and the mean at each place of the period."""
    time = np.arange(len(values))
    level = values - np.polyval(np.polyfit(time, values, 1), time)
    places = time % period
    means = np.bincount(places, level, minlength=period) / np.bincount(places, minlength=period)
    return level - means[places]
