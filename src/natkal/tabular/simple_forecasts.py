"""Simple forecasts of a series, all side by side: naive ones, and linear filters around them.

Each candidate forecasts `base + scale (z @ theta)`: `z` holds the inputs that `Past` makes, less a reference value, in
units of the deviation so far, and a one. `theta` is learned by the linear Kalman filter with fading (recursive least
squares); a candidate with prior 0 stays at its base. A series has a few hundred values and a candidate eight weights,
so all of this is NumPy on the host: a compiled program would take longer to compile than to run.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from natkal.tabular.past import MEAN_RATE, RECENT_LAGS, SEASONAL_LAGS, SEASONAL_MEANS, Past

INPUTS = len(RECENT_LAGS) + SEASONAL_LAGS + SEASONAL_MEANS
FIRST_LEARNED = 4
"""Values before the filters start: the deviation of fewer says nothing."""
LEAST_SCALE = 1e-9
"""The least deviation of a series, in units of the size of its values."""
LARGEST_RESIDUAL = 5.0
"""The most that a residual counts for in the smoothed forecast, in deviations of the series."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """`base` is a weight for each input of `Past`; `level`: around the mean of the series instead of the last value.

    `prior` is the variance of the weights times their number, and `fading` what the filter forgets per value.
    `smoothing` s takes s times the last residual off the base: s = 1 - a is exponential smoothing at rate a.
    """

    base: tuple[float, ...]
    level: bool = False
    prior: float = 0.0
    fading: float = 0.0
    smoothing: float = 0.0


LAST = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
NAIVE = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, -1.0)
SEASONAL = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
DRIFTING = (0.5, 0.0, 0.0, 1.0, -0.5, 0.0, 0.0)
CANDIDATES = (
    Candidate((0.0,) * INPUTS, level=True, prior=1.0),
    Candidate(LAST, prior=1.0, fading=0.02),
    Candidate(NAIVE),
    Candidate(NAIVE, prior=0.1),
    Candidate(SEASONAL),
    Candidate(DRIFTING),
    Candidate(NAIVE, smoothing=0.8),
)
"""An autoregression on the level, one on the differences from the last value, the naive forecast fixed and learned, the
season before, the season before with half of the change since, and the naive forecast smoothed.
"""
COUNT = len(CANDIDATES)
_BASES = np.array([one.base for one in CANDIDATES])
_LEVEL = np.array([one.level for one in CANDIDATES])
_FADING = np.array([one.fading for one in CANDIDATES])
_SMOOTHING = np.array([one.smoothing for one in CANDIDATES])
_PRIOR = np.array([one.prior for one in CANDIDATES])


class Origin(NamedTuple):
    """All that the forecasts after one value depend on: `recent` (season + 1 values, 3 at least), `means` (3, steps).

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
        self.cov = np.eye(INPUTS + 1)[None] * (_PRIOR / (INPUTS + 1))[:, None, None]
        self.residual = np.zeros(COUNT)

    def learn(self, value: float) -> Origin:
        """One more value: the filters learn it; what the next forecasts start from."""
        if len(self.values) >= FIRST_LEARNED:
            scale = self._scale
            base, z = _design(np.broadcast_to(self.past.inputs(), (COUNT, INPUTS)), self.mean, scale)
            base = base - _SMOOTHING * self.residual
            error = value - base - scale * np.einsum("cd,cd->c", z, self.weights)
            prior = self.cov / (1 - _FADING)[:, None, None]
            pushed = np.einsum("cde,ce->cd", prior, z)
            gain = pushed / (1 + np.einsum("cd,cd->c", z, pushed))[:, None]
            self.weights = self.weights + gain * (error / scale)[:, None]
            self.cov = prior - gain[:, :, None] * pushed[:, None, :]
            self.residual = np.clip(error, -LARGEST_RESIDUAL * scale, LARGEST_RESIDUAL * scale)
        self.past.learn(value)
        self.values.append(value)
        away = value - self.mean
        self.mean += away / len(self.values)
        self.squares += away * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)
        return self._origin()

    @property
    def size(self) -> float:
        """The size of the values; never 0."""
        return max(abs(self.low), abs(self.high), float(np.finfo(np.float32).tiny))

    @property
    def _scale(self) -> float:
        return float(np.sqrt(self.squares / len(self.values))) + LEAST_SCALE * self.size

    def _origin(self) -> Origin:
        season = self.past.season
        needed = max(season + 1, len(RECENT_LAGS))
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
    count, lags = len(origins), max(season + 1, len(RECENT_LAGS))
    weights, residual = (np.stack(parts) for parts in zip(*((o.weights, o.residual) for o in origins), strict=True))
    centre, scale, low, high = np.array([(o.centre, o.scale, o.low, o.high) for o in origins]).T
    path = np.empty((count, COUNT, lags + horizon))
    path[:, :, :lags] = np.stack([origin.recent for origin in origins])[:, None]
    means = np.repeat(np.stack([origin.means for origin in origins])[:, None], COUNT, axis=1)
    for step in range(horizon):
        now = lags + step
        inputs = np.full((count, COUNT, INPUTS), np.nan)
        inputs[..., : len(RECENT_LAGS)] = path[..., [now - lag for lag in RECENT_LAGS]]
        place = means[..., step % season] if season else means
        if season:
            inputs[..., 3:5] = path[..., [now - season, now - season - 1]]
            inputs[..., 5:] = place[..., :2] / np.where(place[..., 2:] > 0, place[..., 2:], np.nan)
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
    """Each candidate's base (.., c) and its inputs (.., c, d), of inputs (.., c, 7) as `Past` makes them.

    A base is taken of differences from the last value, in which an input that is missing is 0, as a step is; the
    season before is then the last value.
    """
    last = inputs[..., 0]
    base = last + (np.nan_to_num(inputs - last[..., None]) * _BASES).sum(axis=-1)
    reference = np.where(_LEVEL, centre, last)
    z = np.nan_to_num((inputs - reference[..., None]) / np.asarray(scale)[..., None])
    return np.where(_LEVEL, centre, base), np.concatenate([z, np.ones((*z.shape[:-1], 1))], axis=-1)
