"""Forecasts from earlier values: naive ones, and linear filters around them.

Each candidate forecasts `base + scale (z @ theta)`: `z` holds earlier values (the inputs that `Past` makes, or the last
24) less a reference value, in units of the deviation so far, and a one. `theta` is learned by the linear filter with
fading (recursive least squares). The variance of its noise is the mean square of the candidate's errors so far, faded,
so a series that is nearly without noise is learned from few values; eight errors of half a deviation stand before the
first. A candidate with prior 0 stays at its base.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from natkal.forecasting.filter import Belief, gain_of, learned
from natkal.tables.learner.past import MEAN_RATE, RECENT_LAGS, SEASONAL_LAGS, SEASONAL_MEANS

LONGEST_LAG = 24
EARLIER_LAGS = tuple(lag for lag in range(1, LONGEST_LAG + 1) if lag not in RECENT_LAGS)
SEASONS = slice(len(RECENT_LAGS), len(RECENT_LAGS) + SEASONAL_LAGS)
FROM_PAST = SEASONS.stop + SEASONAL_MEANS
INPUTS = FROM_PAST + len(EARLIER_LAGS)
"""The inputs that `Past` makes, and the earlier lags up to the longest."""
FIRST_LEARNED = 4
"""Values before the filters start: the deviation of fewer says nothing."""
LEAST_SCALE = 1e-9
"""The least deviation of a series, in units of the size of its values."""
LARGEST_ERROR = 4.0
"""The most that an error counts for in a filter, in deviations of the errors before it."""
ERROR_KEPT, FIRST_ERRORS, FIRST_VARIANCE = 0.99, 8.0, 0.25
"""Fading of the mean square of the errors, and what stands before the first: their number and mean square, in units of
the variance of the series.
"""
LEAST_VARIANCE = 1e-18
"""The least variance of the noise, in the same units."""
LARGEST_RESIDUAL = 5.0
"""The most that a residual counts for in the smoothed forecast, in deviations of the series."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """`base` is a weight for each input of `Past`; `level`: around the mean of the series instead of the last value.

    `prior` is the variance of the weights times their number, and `fading` what the filter forgets per value. The
    inputs that are learned from are those of `Past`, or with `long` the last 24 values.
    `smoothing` s takes s times the last residual off the base: s = 1 - a is exponential smoothing at rate a.
    """

    name: str
    base: tuple[float, ...]
    level: bool = False
    prior: float = 0.0
    fading: float = 0.0
    smoothing: float = 0.0
    long: bool = False

    @property
    def variances(self) -> np.ndarray:
        """The prior variance of each weight, the constant's last."""
        learned = np.ones(INPUTS + 1, bool)
        learned[slice(len(RECENT_LAGS), FROM_PAST) if self.long else slice(FROM_PAST, INPUTS)] = False
        return np.where(learned, self.prior / learned.sum(), 0.0)


NOTHING = (0.0,) * FROM_PAST
NAIVE = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, -1.0)
DRIFTING = (0.5, 0.0, 0.0, 1.0, -0.5, 0.0, 0.0)
CANDIDATES = (
    Candidate("autoregression", NOTHING, level=True, prior=0.3),
    Candidate("long autoregression", NOTHING, level=True, prior=0.3, fading=0.005, long=True),
    Candidate("season before with half of the change", DRIFTING),
    Candidate("smoothed naive", NAIVE, smoothing=0.8),
)
COUNT = len(CANDIDATES)
_BASES = np.array([(*one.base, *(0.0 for _ in EARLIER_LAGS)) for one in CANDIDATES])
_LEVEL = np.array([one.level for one in CANDIDATES])
_FADING = np.array([one.fading for one in CANDIDATES])
_SMOOTHING = np.array([one.smoothing for one in CANDIDATES])
_PRIOR = np.stack([np.diag(one.variances) for one in CANDIDATES])


class Origin(NamedTuple):
    """What forecasts start from, of each series; `means` are the seasonal means of the next places."""

    recent: np.ndarray
    means: np.ndarray
    weights: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    residual: np.ndarray


class LaggedForecasts:
    """The candidates on several series of one period (0: none), which come value by value."""

    def __init__(self, series: int, season: int, horizon: int):
        self.season, self.horizon, self.count = season, horizon, 0
        self.recent = np.full((series, max(season + 1, LONGEST_LAG)), np.nan)
        """The last values, the newest last."""
        self.mean, self.squares = np.zeros((2, series))
        self.low, self.high = np.full(series, np.inf), np.full(series, -np.inf)
        self.belief = Belief(np.zeros((series, COUNT, INPUTS + 1)), np.broadcast_to(_PRIOR, (series, *_PRIOR.shape)))
        self.error_squares, self.heard = np.zeros((series, COUNT)), 0.0
        self.residual = np.zeros((series, COUNT))
        self.sums = np.zeros((series, 3, max(season, 1)))
        """The seasonal means: at each place the sums of the values there, of those before them, and of the weights."""

    def learn(self, value: np.ndarray) -> Origin:
        """One more value of each series: the filters learn it; what the next forecasts start from."""
        if self.count >= FIRST_LEARNED:
            self._filter(value)
        if self.season and self.count:
            new = np.stack([value, self.recent[:, -1], np.ones(len(value))], axis=1)
            place = self.count % self.season
            self.sums[:, :, place] = (1 - MEAN_RATE) * self.sums[:, :, place] + new
        self.recent = np.concatenate([self.recent[:, 1:], value[:, None]], axis=1)
        self.count += 1
        away = value - self.mean
        self.mean = self.mean + away / self.count
        self.squares = self.squares + away * (value - self.mean)
        self.low, self.high = np.minimum(self.low, value), np.maximum(self.high, value)
        places = (self.count + np.arange(min(self.season, self.horizon))) % max(self.season, 1)
        return Origin(self.recent, self.sums[:, :, places], self.belief.mean, self.mean, self._scale, self.residual)

    def _filter(self, value: np.ndarray) -> None:
        scale = self._scale[:, None]
        at = self.sums[:, :, self.count % max(self.season, 1)]
        inputs = _inputs(self.recent[:, None], at[:, None], self.season)
        base, z = _design(np.repeat(inputs, COUNT, axis=1), self.mean[:, None], scale)
        base = base - _SMOOTHING * self.residual
        error = (value[:, None] - base) / scale - (z * self.belief.mean).sum(axis=-1)
        self.residual = scale * np.clip(error, -LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        variance = self.noise_variance
        most = LARGEST_ERROR * np.sqrt(variance)
        error = np.clip(error, -most, most)
        prior = Belief(self.belief.mean, self.belief.cov / (1 - _FADING)[:, None, None])
        self.belief = learned(prior, gain_of(prior.cov, z, variance), error)
        self.error_squares = ERROR_KEPT * self.error_squares + error**2
        self.heard = ERROR_KEPT * self.heard + 1

    @property
    def noise_variance(self) -> np.ndarray:
        """That of each candidate's filter, in units of the variance of the series."""
        before = FIRST_ERRORS * FIRST_VARIANCE
        return (self.error_squares + before) / (self.heard + FIRST_ERRORS) + LEAST_VARIANCE

    @property
    def size(self) -> np.ndarray:
        """The size of the values; never 0."""
        return np.maximum(np.maximum(np.abs(self.low), np.abs(self.high)), float(np.finfo(np.float32).tiny))

    @property
    def _scale(self) -> np.ndarray:
        return np.sqrt(self.squares / self.count) + LEAST_SCALE * self.size

    @property
    def limits(self) -> np.ndarray:
        """Of forecasts, (2, series): the range of the series so far and as much again on both sides, but the same sign.

        So no filter leaves for infinity.
        """
        reach = self.high - self.low
        low = np.where(self.low < 0, self.low - reach, np.maximum(self.low - reach, 0.0))
        return np.stack([low, self.high + reach])


def roll(origin: Origin, limits: np.ndarray, season: int, horizon: int) -> np.ndarray:
    """What each candidate forecasts from each origin, (origins, candidates, horizon), between its limits.

    A forecast enters the inputs of the later steps.
    """
    count, lags = origin.recent.shape
    path = np.empty((count, COUNT, lags + horizon))
    path[:, :, :lags] = origin.recent[:, None]
    means = np.repeat(origin.means[:, None], COUNT, axis=1)
    low, high = limits[:, :, None]
    for step in range(horizon):
        now = lags + step
        place = step % season if season else 0
        at = means[..., place] if season else np.zeros((count, COUNT, 3))
        base, z = _design(_inputs(path[..., :now], at, season), origin.centre[:, None], origin.scale[:, None])
        if step == 0:
            base = base - _SMOOTHING * origin.residual
        value = base + origin.scale[:, None] * (z * origin.weights).sum(axis=-1)
        path[..., now] = np.clip(value, low, high)
        if season:
            new = np.stack([path[..., now], path[..., now - 1], np.ones((count, COUNT))], axis=-1)
            means[..., place] = (1 - MEAN_RATE) * at + new
    return path[..., lags:]


def _inputs(before: np.ndarray, at: np.ndarray, season: int) -> np.ndarray:
    """All inputs (.., INPUTS) from the values before (.., n) and the seasonal sums (.., 3) of this place."""
    made = np.full((*before.shape[:-1], INPUTS), np.nan)
    made[..., : len(RECENT_LAGS)] = before[..., [-lag for lag in RECENT_LAGS]]
    made[..., FROM_PAST:] = before[..., [-lag for lag in EARLIER_LAGS]]
    if season:
        made[..., SEASONS] = before[..., [-season, -season - 1]]
        made[..., SEASONS.stop : FROM_PAST] = at[..., :2] / np.where(at[..., 2:] > 0, at[..., 2:], np.nan)
    return made


def _design(inputs: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each candidate's base (.., c) and its inputs (.., c, d), of all inputs (.., c, d).

    A base is taken of differences from the last value, in which an input that is missing is 0, as a step is; the
    season before is then the last value.
    """
    last = inputs[..., 0]
    base = last + (np.nan_to_num(inputs - last[..., None]) * _BASES).sum(axis=-1)
    reference = np.where(_LEVEL, centre, last)
    z = np.nan_to_num((inputs - reference[..., None]) / scale[..., None])
    return np.where(_LEVEL, centre, base), np.concatenate([z, np.ones((*z.shape[:-1], 1))], axis=-1)
