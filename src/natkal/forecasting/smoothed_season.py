"""Seasonal ARIMA forecasts, many at once: a smoothed season and an ARMA process around it.

With B the backward shift, m the period and d = 0 or 1 (Box and Jenkins 1970, chapter 9, one seasonal moving average):

    (1 - B^m) y_t = (1 - K B^m) x_t                                              x_t = y_t - S_t
    (1 - B)^d x_t = c + sum_i phi_i (1 - B)^d x_{t-i} + theta e_{t-1} + e_t

S_t is the exponentially smoothed value at the place of t in the period: S <- S + g x with g = max(1 - K, 1/(k + 1))
after k values at this place, so that a season starts as a mean. K is one of a few numbers, a candidate for each. c, phi
and theta are learned by the linear filter with the last error as an input (extended least squares, Ljung and
Soderstrom 1983, section 2.2). A series without a period has x = y.

With psi_j what an error adds to the value j steps later (Box and Jenkins 1970, section 5.1), errors h steps ahead have
the deviation g(h) = (psi_0^2 + .. + psi_{h-1}^2)^(1/2), in units of that one step ahead.
"""

from typing import NamedTuple

import numpy as np

from natkal.forecasting.filter import Belief, gain_of, learned

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
    """What forecasts start from, of each series; `seasons` and `gains` (series, periods, candidates, steps) are those
    of the next places.
    """

    x: np.ndarray
    error: np.ndarray
    weights: np.ndarray
    deviation: np.ndarray
    seasons: np.ndarray
    gains: np.ndarray


class SmoothedSeason:
    """The candidates on several series with these periods, which come value by value; no period: y itself."""

    def __init__(self, series: int, periods: tuple[int, ...], horizon: int):
        self.periods, self.horizon = periods, horizon
        self.count, self.learned = 0, 0
        self.smoothed = [np.zeros((series, ARMA_COUNT, period)) for period in periods]
        self.x, self.error = np.zeros((series, ARMA_COUNT, LAGS + 1)), np.zeros((series, ARMA_COUNT))
        weights, cov = _first_weights(), _first_cov()
        self.belief = Belief(
            np.broadcast_to(weights, (series, *weights.shape)), np.broadcast_to(cov, (series, *cov.shape))
        )
        self.squares, self.heard = np.zeros((series, ARMA_COUNT)), 0.0

    def learn(self, value: np.ndarray) -> ArmaOrigin:
        """One more value of each series: what the next forecasts start from."""
        self._step(value[:, None])
        steps = self.count + np.arange(self.horizon)
        seasons = np.zeros((len(value), len(self.periods), ARMA_COUNT, self.horizon))
        gains = np.zeros_like(seasons)
        for at, period in enumerate(self.periods):
            seasons[:, at] = self.smoothed[at][:, :, steps % period]
            gains[:, at] = np.stack([self._gain(at, step) for step in steps.tolist()], axis=1)
        return ArmaOrigin(self.x, self.error, self.belief.mean, self._deviation, seasons, gains)

    @property
    def _deviation(self) -> np.ndarray:
        return np.sqrt(self.squares / max(self.heard, 1.0))

    def _gain(self, at: int, step: int) -> np.ndarray:
        """g of one period for the value of this number: a later period starts with what the earlier ones leave."""
        return np.maximum(1 - _K, 1 / (step // self.periods[at] + 1 + at))

    def _step(self, value: np.ndarray) -> None:
        places = [self.count % period for period in self.periods]
        gains = [self._gain(at, self.count) for at in range(len(places))]
        x = value - sum(smoothed[:, :, place] for smoothed, place in zip(self.smoothed, places, strict=True))
        x = np.broadcast_to(x, (len(value), ARMA_COUNT))
        for smoothed, place, gain in zip(self.smoothed, places, gains, strict=True):
            smoothed[:, :, place] += gain * x
        self.count += 1
        if self.periods and self.count <= self.periods[0]:
            return
        self.learned += 1
        if self.learned == 1:
            self.x = np.repeat(x[:, :, None], LAGS + 1, axis=2)
            return
        z, base = _design(self.x, self.error, self._deviation), _DIFFERENCED * self.x[..., 0]
        error = x - base - (z * self.belief.mean).sum(axis=-1)
        few = self.heard < FEW_ERRORS
        variance = (self.squares + few * error**2) / (self.heard + few) + LEAST_VARIANCE * value**2 + 1e-300
        most = LARGEST_ERROR * np.sqrt(variance)
        error = np.clip(error, -most, most)
        if self.learned > FIRST_LEARNED:
            self.belief = learned(self.belief, gain_of(self.belief.cov, z, variance), error)
        self.error = np.clip(x - base - (z * self.belief.mean).sum(axis=-1), -most, most)
        self.squares = ERROR_KEPT * self.squares + error**2
        self.heard = ERROR_KEPT * self.heard + 1
        self.x = np.concatenate([x[..., None], self.x[..., :-1]], axis=-1)


def roll_arma(origin: ArmaOrigin, limits: np.ndarray, periods: tuple[int, ...], horizon: int) -> np.ndarray:
    """What each candidate forecasts from each origin, (origins, candidates, horizon), between its limits."""
    x, error, seasons = origin.x, origin.error, origin.seasons.copy()
    made = np.empty((len(x), ARMA_COUNT, horizon))
    low, high = limits[:, :, None]
    for step in range(horizon):
        smoothed = seasons[..., step].sum(axis=1)
        change = (_design(x, error, origin.deviation) * origin.weights).sum(axis=-1)
        value = np.clip(smoothed + _DIFFERENCED * x[..., 0] + change, low, high)
        x = np.concatenate([(value - smoothed)[..., None], x[..., :-1]], axis=-1)
        _pass_on(seasons, origin.gains, x[..., 0], step, periods)
        error = np.zeros_like(error)
        made[..., step] = value
    return made


def error_growth(origin: ArmaOrigin, periods: tuple[int, ...], horizon: int) -> np.ndarray:
    """g: the deviation of each candidate's errors, relative to one step ahead, (origins, candidates, horizon)."""
    shape = origin.weights.shape[:2]
    responses = np.empty((*shape, horizon))
    x, moved, response = np.zeros((*shape, LAGS + 1)), np.zeros_like(origin.gains), np.ones(shape)
    for step in range(horizon):
        if step:
            error = np.full_like(response, step == 1)
            inputs = _design(x, error, np.zeros_like(error))
            response = _DIFFERENCED * x[..., 0] + (inputs * origin.weights).sum(axis=-1)
        responses[..., step] = response + moved[..., step].sum(axis=1)
        _pass_on(moved, origin.gains, response, step, periods)
        x = np.concatenate([response[..., None], x[..., :-1]], axis=-1)
    return np.sqrt(np.cumsum(np.clip(responses, -LARGEST_RESPONSE, LARGEST_RESPONSE) ** 2, axis=-1))


def _pass_on(seasons: np.ndarray, gains: np.ndarray, x: np.ndarray, step: int, periods: tuple[int, ...]) -> None:
    """What x at this step adds to the seasons at the same place one period later, and two, .."""
    for at, period in enumerate(periods):
        seasons[:, at, :, step + period :: period] += (gains[:, at, :, step] * x)[..., None]


def _design(x: np.ndarray, error: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """The inputs (.., c, LAGS + 2): lags of x or of its differences, the last error, and a constant."""
    lagged = x[..., :LAGS] - _DIFFERENCED[:, None] * x[..., 1:]
    return np.concatenate([lagged, error[..., None], deviation[..., None]], axis=-1)
