"""Seasonal ARIMA forecasts of a series, all side by side: a smoothed season and an ARMA process around it.

With B the backward shift, m the period and d = 0 or 1 (Box and Jenkins 1970, chapter 9, one seasonal moving average):

    (1 - B^m) y_t = (1 - K B^m) x_t                                              x_t = y_t - S_t
    (1 - B)^d x_t = c + sum_i phi_i (1 - B)^d x_{t-i} + theta e_{t-1} + e_t

S_t is the exponentially smoothed value at the place of t in the period: S <- S + g x with g = max(1 - K, 1/(k + 1))
after k values at this place, so that a season starts as a mean. K is one of a few numbers, a candidate for each. c, phi
and theta are learned by the linear Kalman filter with the last error as an input (extended least squares, Ljung and
Soderstrom 1983, section 2.2). A series without a period has x = y.

With psi_j what an error adds to the value j steps later (Box and Jenkins 1970, section 5.1), errors h steps ahead have
the deviation g(h) = (psi_0^2 + .. + psi_{h-1}^2)^(1/2), in units of that one step ahead.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LAGS, DIFFERENCED_LAGS = 13, 3
"""How many phi there are: on the level (a year of months and one more), and of differences."""
KEPT = (0.5, 0.85, 0.97)
"""K: what the season keeps of its earlier value in a period."""
_K = np.array([*KEPT, *KEPT])
_DIFFERENCED = np.repeat([0.0, 1.0], len(KEPT))
ARMA_COUNT = len(_K)
FIRST_PHI = 0.9
"""Around the level, the prior mean of phi_1. All other prior means are 0: of differences, the last value stays."""
WEIGHT_VARIANCE, CONSTANT_VARIANCE = 0.3, 0.01
"""Prior variances: of theta and phi_1, of which phi_i has the i-th part, and of c in units of the noise. Differences
have no c and the level no theta."""
ERROR_KEPT, FEW_ERRORS = 0.99, 8
"""Fading of the mean square of the errors, and how many errors make one."""
LARGEST_ERROR = 4.0
"""The most that an error counts for, in deviations of the errors before it."""
FIRST_LEARNED = 4
"""Values of x before the filter starts."""
LARGEST_RESPONSE = 3.0
"""The most that a psi counts for: while few values are learned, the process may leave for infinity."""
LEAST_VARIANCE = 1e-18
"""The least variance of the noise, in units of the square of the value."""


def _first_weights() -> np.ndarray:
    weights = np.zeros((ARMA_COUNT, LAGS + 2))
    weights[_DIFFERENCED == 0, 0] = FIRST_PHI
    return weights


def _first_cov() -> np.ndarray:
    lags = np.arange(1, LAGS + 1)
    level = [*(WEIGHT_VARIANCE / lags), 0.0, CONSTANT_VARIANCE]
    differenced = [*(WEIGHT_VARIANCE / lags * (lags <= DIFFERENCED_LAGS)), WEIGHT_VARIANCE, 0.0]
    return np.stack([np.diag(differenced if one else level) for one in _DIFFERENCED])


class ArmaOrigin(NamedTuple):
    """All that the forecasts after one value depend on; `seasons` and `gains` are those of the next places."""

    season: int
    x: np.ndarray
    error: np.ndarray
    weights: np.ndarray
    deviation: np.ndarray
    seasons: np.ndarray
    gains: np.ndarray


class SeasonalArma:
    """The candidates on one series, which comes value by value. A new period is learned from all values again."""

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.values: list[float] = []
        self._start(0)

    def _start(self, season: int) -> None:
        self.season = season
        self.count, self.learned = 0, 0
        self.smoothed, self.seen = np.zeros((ARMA_COUNT, max(season, 1))), np.zeros(max(season, 1))
        self.x, self.error = np.zeros((ARMA_COUNT, LAGS + 1)), np.zeros(ARMA_COUNT)
        self.weights, self.cov = _first_weights(), _first_cov()
        self.squares, self.heard = np.zeros(ARMA_COUNT), 0.0

    def learn(self, value: float, season: int) -> ArmaOrigin:
        """One more value, and the period that is known by now (0: none): what the next forecasts start from."""
        self.values.append(value)
        if season != self.season:
            self._start(season)
        for one in self.values[self.count :]:
            self._step(one)
        places = (self.count + np.arange(min(season, self.horizon))) % max(season, 1)
        return ArmaOrigin(
            season, self.x, self.error, self.weights, self._deviation, self.smoothed[:, places], self._gains(places)
        )

    @property
    def _deviation(self) -> np.ndarray:
        return np.sqrt(self.squares / max(self.heard, 1.0))

    def _gains(self, places: np.ndarray) -> np.ndarray:
        return np.maximum(1 - _K[:, None], 1 / (self.seen[places] + 1))

    def _step(self, value: float) -> None:
        place = np.array([self.count % max(self.season, 1)])
        self.count += 1
        x = np.full(ARMA_COUNT, value)
        if self.season:
            known = self.seen[place[0]] > 0
            x = value - self.smoothed[:, place[0]] if known else x
            self.smoothed[:, place] += self._gains(place) * x[:, None]
            self.seen[place] += 1
            if not known:
                return
        self.learned += 1
        if self.learned == 1:
            self.x = np.repeat(x[:, None], LAGS + 1, axis=1)
            return
        z, base = _design(self.x, self.error, self._deviation), _DIFFERENCED * self.x[:, 0]
        error = x - base - (z * self.weights).sum(axis=1)
        few = self.heard < FEW_ERRORS
        variance = (self.squares + few * error**2) / (self.heard + few) + LEAST_VARIANCE * value**2 + 1e-300
        most = LARGEST_ERROR * np.sqrt(variance)
        error = np.clip(error, -most, most)
        if self.learned > FIRST_LEARNED:
            pushed = np.einsum("cde,ce->cd", self.cov, z)
            gain = pushed / (variance + (z * pushed).sum(axis=1))[:, None]
            self.weights = self.weights + gain * error[:, None]
            self.cov = self.cov - gain[:, :, None] * pushed[:, None, :]
        self.error = np.clip(x - base - (z * self.weights).sum(axis=1), -most, most)
        self.squares = ERROR_KEPT * self.squares + error**2
        self.heard = ERROR_KEPT * self.heard + 1
        self.x = np.concatenate([x[:, None], self.x[:, :-1]], axis=1)


def roll_arma(origins: Sequence[ArmaOrigin], low: np.ndarray, high: np.ndarray, horizon: int) -> np.ndarray:
    """What each candidate forecasts from each origin, (origins, candidates, horizon), between its limits."""
    made = np.empty((len(origins), ARMA_COUNT, horizon))
    periods = np.array([origin.season for origin in origins])
    for season in np.unique(periods):
        places = np.flatnonzero(periods == season)
        _, x, error, weights, deviation, seasons, gains = (
            np.stack(parts) for parts in zip(*(origins[place] for place in places.tolist()), strict=True)
        )
        limits = low[places, None], high[places, None]
        for step in range(horizon):
            at = step % max(season, 1)
            smoothed = seasons[..., at] if season else 0.0
            change = np.einsum("kcd,kcd->kc", _design(x, error, deviation), weights)
            value = np.clip(smoothed + _DIFFERENCED * x[..., 0] + change, *limits)
            x = np.concatenate([(value - smoothed)[..., None], x[..., :-1]], axis=-1)
            if season:
                seasons[..., at] += gains[..., at] * x[..., 0]
            error = np.zeros_like(error)
            made[places, :, step] = value
    return made


def error_growth(origins: Sequence[ArmaOrigin], horizon: int) -> np.ndarray:
    """g: the deviation of each candidate's errors, relative to one step ahead, (origins, candidates, horizon)."""
    responses = np.empty((len(origins), ARMA_COUNT, horizon))
    periods = np.array([origin.season for origin in origins])
    for season in np.unique(periods):
        places = np.flatnonzero(periods == season)
        weights, gains = (
            np.stack(parts)
            for parts in zip(*((origins[at].weights, origins[at].gains) for at in places.tolist()), strict=True)
        )
        x, moved = np.zeros((*weights.shape[:2], LAGS + 1)), np.zeros_like(gains)
        response = np.ones(weights.shape[:2])
        for step in range(horizon):
            if step:
                error = np.full_like(response, step == 1)
                inputs = _design(x, error, np.zeros_like(error))
                response = _DIFFERENCED * x[..., 0] + np.einsum("kcd,kcd->kc", inputs, weights)
            at = step % max(season, 1)
            responses[places, :, step] = response + (moved[..., at] if season else 0.0)
            if season:
                moved[..., at] += gains[..., at] * response
            x = np.concatenate([response[..., None], x[..., :-1]], axis=-1)
    return np.sqrt(np.cumsum(np.clip(responses, -LARGEST_RESPONSE, LARGEST_RESPONSE) ** 2, axis=-1))


def _design(x: np.ndarray, error: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """The inputs (.., c, LAGS + 2): lags of x or of its differences, the last error, and a constant."""
    lagged = x[..., :LAGS] - _DIFFERENCED[:, None] * x[..., 1:]
    return np.concatenate([lagged, error[..., None], deviation[..., None]], axis=-1)
