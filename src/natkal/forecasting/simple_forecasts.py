"""Simple forecasts of a series, all side by side: naive ones, and linear filters around them.

Each candidate forecasts `base + scale (z @ theta)`: `z` holds earlier values (inputs of `Past` or the last 24) less a
reference value, in units of the deviation so far, and a one. `theta` is learned by the linear Kalman filter with fading
(recursive least squares). The variance of its noise is the mean square of the candidate's errors so far, faded, so a
series that is nearly without noise is learned from few values; eight errors of half a deviation stand before the first.
A candidate with prior 0 stays at its base. A series has a few hundred values and a candidate a few weights, so all of
this is NumPy on the host: a program would take longer to compile than this takes to run.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from natkal.tables.learner.past import MEAN_RATE, RECENT_LAGS, SEASONAL_LAGS, SEASONAL_MEANS, Past

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
    Candidate(NOTHING, level=True, prior=0.3),
    Candidate(NOTHING, level=True, prior=0.3, fading=0.005, long=True),
    Candidate(DRIFTING),
    Candidate(NAIVE, smoothing=0.8),
)
"""An autoregression on the level, a long one, the season before with half of the change since, and the naive forecast
smoothed.
"""
COUNT = len(CANDIDATES)
_BASES = np.array([(*one.base, *(0.0 for _ in EARLIER_LAGS)) for one in CANDIDATES])
_LEVEL = np.array([one.level for one in CANDIDATES])
_FADING = np.array([one.fading for one in CANDIDATES])
_SMOOTHING = np.array([one.smoothing for one in CANDIDATES])
_PRIOR = np.stack([np.diag(one.variances) for one in CANDIDATES])


class Origin(NamedTuple):
    """All that the forecasts after one value depend on: `recent` (season + 1 values, 24 at least), `means` (3, steps).

    `low` and `high` are the limits of forecasts.
    """

    season: int
    recent: np.ndarray
    means: np.ndarray
    weights: np.ndarray
    centre: float
    scale: float
    residual: np.ndarray
    low: float
    high: float


class SimpleForecasts:
    """The candidates on one series, which comes value by value."""

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.past = Past(0, None)
        self.values: list[float] = []
        self.mean, self.squares = 0.0, 0.0
        self.low, self.high = np.inf, -np.inf
        self.weights = np.zeros((COUNT, INPUTS + 1))
        self.cov = _PRIOR
        self.error_squares, self.heard = np.zeros(COUNT), 0.0
        self.residual = np.zeros(COUNT)

    def learn(self, value: float) -> Origin:
        """One more value: the filters learn it; what the next forecasts start from."""
        if len(self.values) >= FIRST_LEARNED:
            scale = self._scale
            earlier = [self.values[-lag] if lag <= len(self.values) else np.nan for lag in EARLIER_LAGS]
            inputs = np.concatenate([self.past.inputs(), earlier])
            base, z = _design(np.broadcast_to(inputs, (COUNT, INPUTS)), self.mean, scale)
            base = base - _SMOOTHING * self.residual
            error = (value - base) / scale - np.einsum("cd,cd->c", z, self.weights)
            self.residual = scale * np.clip(error, -LARGEST_RESIDUAL, LARGEST_RESIDUAL)
            variance = self.noise_variance
            error = np.clip(error, -LARGEST_ERROR * np.sqrt(variance), LARGEST_ERROR * np.sqrt(variance))
            prior = self.cov / (1 - _FADING)[:, None, None]
            pushed = np.einsum("cde,ce->cd", prior, z)
            gain = pushed / (variance + np.einsum("cd,cd->c", z, pushed))[:, None]
            self.weights = self.weights + gain * error[:, None]
            self.cov = prior - gain[:, :, None] * pushed[:, None, :]
            self.error_squares = ERROR_KEPT * self.error_squares + error**2
            self.heard = ERROR_KEPT * self.heard + 1
        self.past.learn(value)
        self.values.append(value)
        away = value - self.mean
        self.mean += away / len(self.values)
        self.squares += away * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)
        return self._origin()

    @property
    def noise_variance(self) -> np.ndarray:
        """That of each candidate's filter, in units of the variance of the series."""
        before = FIRST_ERRORS * FIRST_VARIANCE
        return (self.error_squares + before) / (self.heard + FIRST_ERRORS) + LEAST_VARIANCE

    @property
    def size(self) -> float:
        """The size of the values; never 0."""
        return max(abs(self.low), abs(self.high), float(np.finfo(np.float32).tiny))

    @property
    def _scale(self) -> float:
        return float(np.sqrt(self.squares / len(self.values))) + LEAST_SCALE * self.size

    def _origin(self) -> Origin:
        season = self.past.season
        needed = max(season + 1, LONGEST_LAG)
        recent = np.full(needed, np.nan)
        known = self.values[-needed:]
        recent[needed - len(known) :] = known
        means = np.zeros((3, min(season, self.horizon)))
        if season:
            found = self.past.means[""]
            places = (found.count + np.arange(means.shape[1])) % season
            means = np.stack([found.sums[places], found.previous[places], found.weights[places]])
        reach = self.high - self.low
        low = self.low - reach if self.low < 0 else max(self.low - reach, 0.0)
        high = self.high + reach
        return Origin(season, recent, means, self.weights, self.mean, self._scale, self.residual, low, high)


def roll(origins: Sequence[Origin], horizon: int) -> np.ndarray:
    """What each candidate forecasts from each origin, (origins, candidates, horizon).

    A forecast enters the inputs of the later steps. Forecasts stay within the range of the series so far and as much
    again on both sides, so that no filter leaves for infinity.
    """
    made = np.empty((len(origins), COUNT, horizon))
    seasons = np.array([origin.season for origin in origins])
    for season in np.unique(seasons):
        places = np.flatnonzero(seasons == season)
        made[places] = _roll([origins[place] for place in places.tolist()], int(season), horizon)
    return made


def _roll(origins: list[Origin], season: int, horizon: int) -> np.ndarray:
    count, lags = len(origins), max(season + 1, LONGEST_LAG)
    weights, residual = (np.stack(parts) for parts in zip(*((o.weights, o.residual) for o in origins), strict=True))
    centre, scale, low, high = np.array([(o.centre, o.scale, o.low, o.high) for o in origins]).T
    path = np.empty((count, COUNT, lags + horizon))
    path[:, :, :lags] = np.stack([origin.recent for origin in origins])[:, None]
    means = np.repeat(np.stack([origin.means for origin in origins])[:, None], COUNT, axis=1)
    for step in range(horizon):
        now = lags + step
        inputs = np.full((count, COUNT, INPUTS), np.nan)
        inputs[..., : len(RECENT_LAGS)] = path[..., [now - lag for lag in RECENT_LAGS]]
        inputs[..., FROM_PAST:] = path[..., [now - lag for lag in EARLIER_LAGS]]
        place = means[..., step % season] if season else means
        if season:
            inputs[..., SEASONS] = path[..., [now - season, now - season - 1]]
            inputs[..., SEASONS.stop : FROM_PAST] = place[..., :2] / np.where(
                place[..., 2:] > 0, place[..., 2:], np.nan
            )
        base, z = _design(inputs, centre[:, None], scale[:, None])
        if step == 0:
            base = base - _SMOOTHING * residual
        value = base + scale[:, None] * np.einsum("kcd,kcd->kc", z, weights)
        path[..., now] = np.clip(value, low[:, None], high[:, None])
        if season:
            new = np.stack([path[..., now], path[..., now - 1], np.ones((count, COUNT))], axis=-1)
            means[..., step % season] = (1 - MEAN_RATE) * place + new
    return path[..., lags:]


def _design(inputs: np.ndarray, centre: np.ndarray | float, scale: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Each candidate's base (.., c) and its inputs (.., c, d), of all inputs (.., c, d).

    A base is taken of differences from the last value, in which an input that is missing is 0, as a step is; the
    season before is then the last value.
    """
    last = inputs[..., 0]
    base = last + (np.nan_to_num(inputs - last[..., None]) * _BASES).sum(axis=-1)
    reference = np.where(_LEVEL, centre, last)
    z = np.nan_to_num((inputs - reference[..., None]) / np.asarray(scale)[..., None])
    return np.where(_LEVEL, centre, base), np.concatenate([z, np.ones((*z.shape[:-1], 1))], axis=-1)
