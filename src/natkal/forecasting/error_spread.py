"""The spread of forecasts at each step, from the errors that they made so far.

o(h) is the faded mean of the absolute errors h steps ahead (0.99), times (pi / 2)^(1/2); an error counts for at most 5
times what was told, or the size of the last errors times as much. Errors h steps ahead share
h - 1 of their steps with the next ones, so n(h) faded errors count as n(h) / h. The process that is forecast has a law
for how its errors grow, g(h) (`smoothed_season.error_growth`); it stands for 30 errors more at each step:

    r(h) = log o(h) / g(h)      r = sum n(h)/h r(h) / sum n(h)/h
    s(h) = g(h) exp((n(h)/h r(h) + 30 r) / (n(h)/h + 30))

v is how large the last errors were, relative to s, in the mean over the steps (d = 0.9, and three errors of relative
size 1 before the first). Noise that comes in bursts needs v, steady noise is better off without it, so its power q is
the mean of 0, 0.35, 0.7 and 1 by how well each would have done, with the root of the Gaussian likelihood:

    L(q) <- 0.998 L(q) + mean over h of log v^q + (e(h) / s(h) v^q)^2 / 2        weight(q) ~ exp(-L(q) / 2)

where s and v are those of the day of the forecast. Tails are those of a normal law, stretched by a factor which is
learned from the 90 percent intervals that came true (adaptive conformal inference, Gibbs and Candes 2021, one factor
for each step; slower for later ones, whose errors come in runs):

    t(h) <- t(h) + 0.06 h^-1/4 (1 if y was outside else 0, less 0.1)
    q(u) = z(u) exp(t(h) min(|z(u)| / z(0.95), 1)^4)   z the normal quantile

All of this is about errors divided by a factor f for the place in the period that was forecast (`seasonal_spread`), and
spreads are multiplied by it.
"""

from collections import deque
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from natkal.forecasting.seasonal_spread import SeasonalSpread

SPREAD_KEPT, RECENT_KEPT, POWERS_KEPT = 0.99, 0.9, 0.998
RECENT_BEFORE, LARGEST_RECENT = 3.0, 10.0
"""Errors of relative size 1 before the first, and the largest relative size."""
POWERS = np.array([0.0, 0.35, 0.7, 1.0])
SHARE_OF_LIKELIHOOD, LARGEST_ERROR = 0.5, 4.0
"""The power of the likelihood, and the most that an error counts for in it, in deviations."""
GROWTH_ERRORS = 30.0
"""As many errors at each step the growth g stands for."""
LARGEST_IN_SPREAD = 5.0
"""The most that an error counts for in o, in deviations times the size of the last errors: a jump is one accident."""
TAIL_RATE, TAIL_RATE_FALL, TAIL_POWER = 0.06, 0.25, 4
LEAST_TAIL, LARGEST_TAIL = -0.2, 1.0
"""Limits of the logarithm of the factor: quantiles stay in order above -1/4."""
LEVEL_90 = NormalDist().inv_cdf(0.95)
SHARE_OUTSIDE = 0.1
LEAST_ERRORS = 12
"""Errors of one step without which its spread is not known."""
LEAST_HEARD = (1 - SPREAD_KEPT**LEAST_ERRORS) / (1 - SPREAD_KEPT)
"""As many errors, faded."""
MEAN_TO_DEVIATION = float(np.sqrt(np.pi / 2))
"""The deviation of a normal law over its mean absolute value."""


class Told(NamedTuple):
    """What was said of one forecast of each series (series, steps), half of the width being that of the 90% interval.

    s, v (series,), the spread s v^q, the width, and f.
    """

    deviation: np.ndarray
    recent: np.ndarray
    spread: np.ndarray
    width: np.ndarray
    factor: np.ndarray


class ErrorSpread:
    """The spread of the forecasts of several series of one period (0: none)."""

    def __init__(self, series: int, season: int, horizon: int):
        self.horizon = horizon
        self.errors, self.tail = np.zeros((2, series, horizon))
        self.heard = np.zeros(horizon)
        self.recent, self.recent_heard = np.full((2, series), RECENT_BEFORE)
        self.power_losses = np.zeros((series, len(POWERS)))
        self.places = SeasonalSpread(series, season)
        self.rates = TAIL_RATE / np.arange(1, horizon + 1) ** TAIL_RATE_FALL
        self.told: deque[Told] = deque(maxlen=horizon)
        """Of the last forecasts, newest first."""

    @property
    def known(self) -> bool:
        """True if errors of the first step are enough."""
        return bool(self.heard[0] >= LEAST_HEARD)

    def learn(self, errors: np.ndarray, least: np.ndarray, row: int = 0) -> None:
        """Absolute errors (series, steps) at the first steps, one of each of the last forecasts of the value in a row.

        `least` (series, 1) is a size that counts as 0.
        """
        steps = np.arange(errors.shape[1])
        deviation, spread, width, factor = (
            np.stack([parts[at][:, step] for step, parts in enumerate(self.told)], axis=1) for at in (0, 2, 3, 4)
        )
        self.places.learn(MEAN_TO_DEVIATION * errors / (spread + least), row)
        errors = errors / factor
        outside = np.where(np.isnan(width), SHARE_OUTSIDE, errors > width)
        self.tail[:, steps] += self.rates[steps] * (outside - SHARE_OUTSIDE)
        self.tail = np.clip(self.tail, LEAST_TAIL, LARGEST_TAIL)
        self._learn_power(errors, deviation, least)
        self._learn_recent(errors, least)
        largest = LARGEST_IN_SPREAD * np.maximum(self._recent, 1.0)[:, None] * (deviation + least)
        most = np.where(np.isnan(deviation), np.inf, largest)
        for sums, new in ((self.errors, np.minimum(errors, most)), (self.heard, 1.0)):
            sums *= SPREAD_KEPT
            sums[..., steps] += new

    @property
    def _recent(self) -> np.ndarray:
        return self.recent / self.recent_heard

    def _learn_power(self, errors: np.ndarray, deviation: np.ndarray, least: np.ndarray) -> None:
        known = ~np.isnan(deviation[0])
        if known.any():
            recent = np.stack([told.recent for told in self.told], axis=1)[:, known]
            logs = POWERS[:, None] * np.log(recent)[:, None]
            relative = (errors / (deviation + least))[:, None, known] * np.exp(-logs)
            losses = logs + np.minimum(relative, LARGEST_ERROR) ** 2 / 2
            self.power_losses = POWERS_KEPT * self.power_losses + losses.mean(axis=2)

    def _learn_recent(self, errors: np.ndarray, least: np.ndarray) -> None:
        enough = self.heard[: errors.shape[1]] >= LEAST_HEARD
        if enough.any():
            before = (self.errors / np.maximum(self.heard, 1.0))[:, : errors.shape[1]] + least
            relative = np.minimum(np.mean((errors / before)[:, enough], axis=1), LARGEST_RECENT)
            self.recent = RECENT_KEPT * (self.recent - RECENT_BEFORE) + relative + RECENT_BEFORE
            self.recent_heard = RECENT_KEPT * (self.recent_heard - RECENT_BEFORE) + 1.0 + RECENT_BEFORE

    def tell(self, growth: np.ndarray, least: np.ndarray, row: int = 0) -> None:
        """The spread of one more forecast of each series, whose errors should grow like this (series, steps).

        NaN at steps with few errors. `row` is that of the first step.
        """
        deviation, recent = self._deviation(growth, least), self._recent
        weights = np.exp(SHARE_OF_LIKELIHOOD * (self.power_losses.min(axis=1, keepdims=True) - self.power_losses))
        power = weights @ POWERS / weights.sum(axis=1)
        spread = deviation * (recent**power)[:, None]
        factor = self.places.factors(row + np.arange(self.horizon))
        self.told.appendleft(Told(deviation, recent, spread, LEVEL_90 * np.exp(self.tail) * spread, factor))

    @property
    def latest(self) -> np.ndarray:
        """The spread of the last forecast of each series at each step; NaN where few errors are known."""
        return self.told[0].spread * self.told[0].factor

    def _deviation(self, growth: np.ndarray, least: np.ndarray) -> np.ndarray:
        enough = self.heard >= LEAST_HEARD
        if not enough.any():
            return np.full(self.errors.shape, np.nan)
        own = MEAN_TO_DEVIATION * self.errors / np.maximum(self.heard, 1.0) + least
        ratios, count = np.log(own / growth), self.heard / np.arange(1, self.horizon + 1) * enough
        common = (np.where(enough, ratios, 0.0) @ count / count.sum())[:, None]
        shrunk = growth * np.exp((count * ratios + GROWTH_ERRORS * common) / (count + GROWTH_ERRORS))
        return np.where(enough, shrunk, np.nan)

    def stretched(self, normal: np.ndarray, series: int = 0) -> np.ndarray:
        """q of normal quantiles (n,) at each step of one series, (n, horizon), in units of the spread."""
        share = np.minimum(np.abs(normal)[:, None] / LEVEL_90, 1.0) ** TAIL_POWER
        return normal[:, None] * np.exp(self.tail[series] * share)
