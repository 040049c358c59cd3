"""How large the errors at each place of the period are, relative to the others.

Temperatures are less certain in winter than in summer, sales in December than in March. With a(j) the faded sum of the
absolute errors of the values at place j, relative to the spread that was told of them (d = 0.999, the mean over the
forecasts of a value, each error 4 at most), n(j) their number, and a~, n~ these with half of both neighbours' added:

    f(j) = (10 + a~(j) / c) / (10 + n~(j))      c = sum of a / sum of n, so that f is 1 where all places are alike

which is drawn towards 1 as if 10 values of average errors had come at each place. f stays between 0.3 and 3, and is 1
for a series without a period and until there is a value for each place.
"""

import numpy as np

KEPT, NEIGHBOURS, VALUES_BEFORE = 0.999, 0.5, 10.0
LARGEST_ERROR = 4.0
LEAST_FACTOR, LARGEST_FACTOR = 0.3, 3.0
SHORTEST = 3
"""The shortest period in which a place has two neighbours."""


class SeasonalSpread:
    """The factors of several series of one period (0: none)."""

    def __init__(self, series: int, season: int):
        self.season = season
        self.sums, self.counts = np.zeros((2, series, max(season, 1)))

    def learn(self, relative: np.ndarray, row: int) -> None:
        """Absolute errors (series, forecasts) of the value in this row over the spreads told; NaN where none was."""
        known = ~np.isnan(relative)
        if not self.season or not known.any():
            return
        there = known.any(axis=1)
        kept = np.where(there, KEPT, 1.0)[:, None]
        self.sums *= kept
        self.counts *= kept
        number = np.maximum(known.sum(axis=1), 1)
        mean = np.where(known, np.minimum(relative, LARGEST_ERROR), 0.0).sum(axis=1) / number
        self.sums[:, row % self.season] += mean
        self.counts[:, row % self.season] += there

    def factors(self, rows: np.ndarray) -> np.ndarray:
        """f of the values in these rows, (series, rows)."""
        if not self.season:
            return np.ones((len(self.sums), len(rows)))
        total, count = self.sums.sum(axis=1, keepdims=True), self.counts.sum(axis=1, keepdims=True)
        enough = (total > 0) & (count > self.season)
        sums = _with_neighbours(self.sums * count / np.where(enough, total, 1.0))
        factors = (VALUES_BEFORE + sums) / (VALUES_BEFORE + _with_neighbours(self.counts))
        return np.where(enough, np.clip(factors, LEAST_FACTOR, LARGEST_FACTOR), 1.0)[:, rows % self.season]


def _with_neighbours(places: np.ndarray) -> np.ndarray:
    if places.shape[1] < SHORTEST:
        return places
    return places + NEIGHBOURS * (np.roll(places, 1, axis=1) + np.roll(places, -1, axis=1))
