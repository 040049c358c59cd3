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
    """The factors of one series. A new period starts from nothing."""

    def __init__(self):
        self._start(0)

    def _start(self, season: int) -> None:
        self.season = season
        self.sums, self.counts = np.zeros((2, max(season, 1)))

    def learn(self, relative: np.ndarray, row: int) -> None:
        """Absolute errors of the value in this row over the spreads told of it; NaN where none was told."""
        known = ~np.isnan(relative)
        if not self.season or not known.any():
            return
        self.sums *= KEPT
        self.counts *= KEPT
        self.sums[row % self.season] += np.minimum(relative[known], LARGEST_ERROR).mean()
        self.counts[row % self.season] += 1

    def factors(self, rows: np.ndarray, season: int) -> np.ndarray:
        """f of the values in these rows; `season` is the period that is known by now (0: none)."""
        if season != self.season:
            self._start(season)
        if not self.sums.sum() or self.counts.sum() <= season:
            return np.ones(len(rows))
        sums = _with_neighbours(self.sums * self.counts.sum() / self.sums.sum())
        factors = (VALUES_BEFORE + sums) / (VALUES_BEFORE + _with_neighbours(self.counts))
        return np.clip(factors, LEAST_FACTOR, LARGEST_FACTOR)[rows % season]


def _with_neighbours(places: np.ndarray) -> np.ndarray:
    if len(places) < SHORTEST:
        return places
    return places + NEIGHBOURS * (np.roll(places, 1) + np.roll(places, -1))
