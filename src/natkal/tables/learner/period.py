"""The period of a series: the lag at which its autocorrelation has a strong peak.

Two series are looked at: the values less a straight line, in which a smooth cycle stands out, and their changes, in
which a season on a wandering level does. The one with the higher peak decides. Peaks are looked for beyond the first
lag of negative correlation, so that a slow series is not its own period. Multiples of a period have the same
correlation up to its error, about 1/sqrt(n): the shortest lag that is nearly as good as the best is taken.
"""

from typing import NamedTuple

import numpy as np

LONGEST_PERIOD = 1024
SHORTEST_SERIES = 36
STRONG = 0.3
"""The least autocorrelation at a period."""
LEVEL_DEVIATIONS, CHANGE_DEVIATIONS = 3.0, 4.0
"""And at least so many times 1/sqrt(n). Changes of noise are correlated, so theirs has the larger error."""
NEARLY, ERRORS = 0.15, 2.0
"""Nearly as good as the best: less by at most this share of it, or by so many times 1/sqrt(n)."""
ONE_PEAK = 1.2
"""Peaks up to this factor beyond the shortest are one noisy peak: the highest of them is the period."""
CLIPPED_ABOVE = 0.98
"""Values beyond this quantile of the absolute values are clipped: outliers have no period."""


class Peak(NamedTuple):
    """A lag and the autocorrelation at it."""

    lag: int
    correlation: float


def find_period(values: np.ndarray) -> int:
    """The period in rows; 0 where there is none."""
    count = len(values)
    if count < SHORTEST_SERIES or not np.isfinite(values).all():
        return 0
    time = np.arange(count)
    level = values - np.polyval(np.polyfit(time, values, 1), time)
    least = 1e-12 * (np.abs(values).max() + 1e-300)
    found = [
        _strong_peak(part, deviations)
        for part, deviations in ((level, LEVEL_DEVIATIONS), (np.diff(values), CHANGE_DEVIATIONS))
        if part.std() > least
    ]
    return max(found, key=lambda peak: peak.correlation).lag if found else 0


def _strong_peak(values: np.ndarray, deviations: float) -> Peak:
    count = len(values)
    correlation = _autocorrelation(values)
    negative = np.flatnonzero(correlation < 0)
    first = max(int(negative[0]), 2) if len(negative) else len(correlation)
    inner = correlation[1:-1]
    is_peak = (inner >= correlation[:-2]) & (inner >= correlation[2:])
    lags = np.flatnonzero(is_peak & (inner > 0)) + 1
    lags = lags[lags >= first]
    if not len(lags):
        return Peak(0, 0.0)
    best = correlation[lags].max()
    near = lags[correlation[lags] > best - max(NEARLY * best, ERRORS / np.sqrt(count))]
    around = near[near <= ONE_PEAK * near[0]]
    lag = int(around[np.argmax(correlation[around])])
    height = float(correlation[lag])
    return Peak(lag, height) if height > max(STRONG, deviations / np.sqrt(count)) else Peak(0, 0.0)


def _autocorrelation(values: np.ndarray) -> np.ndarray:
    """At lags 0, 1, .. up to a third of the series; sums over n - lag products are divided by n - lag."""
    count = len(values)
    centred = values - values.mean()
    limit = np.quantile(np.abs(centred), CLIPPED_ABOVE)
    centred = np.clip(centred, -limit, limit)
    size = 1 << int(np.ceil(np.log2(2 * count)))
    spectrum = np.fft.rfft(centred, size)
    longest = min(LONGEST_PERIOD, count // 3)
    sums = np.fft.irfft(spectrum * np.conj(spectrum), size)[: longest + 1]
    return sums / np.maximum(sums[0], 1e-300) * count / (count - np.arange(longest + 1))
