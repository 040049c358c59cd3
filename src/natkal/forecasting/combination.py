"""Forecasts of several steps combined: the mixture's paths, and simple forecasts weighed by how they came true.

The members of the mixture are weighed by how they predict one row. Several rows ahead, simple forecasts are often
better. So the candidates of `simple_forecasts`, `seasonal_arma` and `structural` (on the values, and on their
logarithms where all are positive) run through the known past of the series. What each forecast at every origin is
compared with what came, step by step:

    l(c, h) <- d l(c, h) + |y - forecast(c, h)|        d = 0.995, and n(h) <- d n(h) + 1
    r(c) = mean over h of l(c, h) / min_c l(c, h)      weight(c) ~ r(c)^-k

with k = 10 up to 200 values, and a twentieth of their number up to 20. The weighted mean of the candidates has errors
of its own, from which `error_spread` takes the spread at each step and the tails.

The mixture is one more candidate: the spread that it expects at each step stands for its errors, 1.2 times as large
because nobody has tested it. Quantiles are averaged: a path at quantile u of the mixture's paths becomes

    (1 - b) (mean(h) + spread(h) q(u)) + b path(h)     b the weight of the mixture

so steps of a path depend on each other as in the mixture, and where b is 1 nothing changes.
"""

import functools
from collections import deque
from statistics import NormalDist
from weakref import WeakKeyDictionary

import numpy as np

from natkal.forecasting.error_spread import LEAST_ERRORS, MEAN_TO_DEVIATION, ErrorSpread
from natkal.forecasting.seasonal_arma import ARMA_COUNT, SeasonalArma, error_growth, roll_arma
from natkal.forecasting.simple_forecasts import COUNT, SimpleForecasts, roll
from natkal.forecasting.structural import STRUCTURAL_COUNT, StructuralForecasts
from natkal.tables.learner.past import Past

COUNT_OF_ALL = COUNT + ARMA_COUNT + STRUCTURAL_COUNT
"""Candidates on one scale of the values."""
LEAST_POWER, LARGEST_POWER, VALUES_PER_POWER = 10.0, 20.0, 20
LOSS_KEPT = 0.995
UNTESTED = 1.2
"""The errors that the mixture expects count as so many times larger: they are not compared with what came."""
FIRST_ORIGIN = 24
"""Values before the first forecast is made."""
LEAST_LOSS = 1e-9
"""A loss counts as this at least, in units of the size of the values: that of a constant series is 0."""
LARGEST_LOG = 700.0
LARGEST_VALUE = 1e100
"""Larger values are not combined: their squares are no numbers."""
STRETCH = 512
"""The past that is looked at begins at a multiple of this many values: 512 to 1,023 of them, or all there are."""


_KEPT: "WeakKeyDictionary[Past, dict[str, Combination]]" = WeakKeyDictionary()
"""Combinations as far as they came, key by key: the next forecast goes on from there, with the same result."""


class Candidates:
    """All candidates on one scale of the values: as they are, or their logarithms."""

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.simple, self.arma = SimpleForecasts(horizon), SeasonalArma(horizon)
        self.structural = StructuralForecasts(horizon)

    def extend(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
        """What they forecast after each of more values (values, candidates, steps), limits (2, values), how the errors
        of the seasonal ARIMA ones should grow, and the period known at each value.
        """
        origins = [self.simple.learn(float(value)) for value in values]
        starts = [self.arma.learn(float(value), one.season) for value, one in zip(values, origins, strict=True)]
        limits = np.array([(origin.low, origin.high) for origin in origins]).T
        seasons = [one.season for one in origins]
        structural = [self.structural.learn(float(value), one) for value, one in zip(values, seasons, strict=True)]
        made = [
            roll(origins, self.horizon),
            roll_arma(starts, limits[0], limits[1], self.horizon),
            np.clip(structural, *limits[:, :, None, None]),
        ]
        return np.concatenate(made, axis=1), limits, error_growth(starts, self.horizon), seasons


class Combination:
    """The candidates on the values of one series, and how their forecasts came true."""

    def __init__(self, horizon: int, first: int, positive: bool):
        self.horizon, self.first, self.positive = horizon, first, positive
        self.scales = [Candidates(horizon) for _ in range(1 + positive)]
        count = COUNT_OF_ALL * len(self.scales)
        places = np.arange(count) % COUNT_OF_ALL
        self.arma = (places >= COUNT) & (places < COUNT + ARMA_COUNT)
        self.count, self.size = 0, float(np.finfo(np.float32).tiny)
        self.losses, self.heard = np.zeros((count, horizon)), np.zeros(horizon)
        self.spread = ErrorSpread(horizon)
        self.made: deque[np.ndarray] = deque(maxlen=horizon)
        """The last forecasts, newest first, (candidates + 1, steps): those of the candidates and of the combination."""

    @property
    def last(self) -> float:
        """The last value."""
        return self.scales[0].simple.values[-1]

    def extend(self, values: np.ndarray) -> None:
        """More values, in order."""
        if not len(values):
            return
        forecasts, limits, growths, seasons = self.scales[0].extend(values)
        if self.positive:
            logs, _, growths_of_logs, _ = self.scales[1].extend(np.log(values))
            of_logs = np.clip(np.exp(np.minimum(logs, LARGEST_LOG)), *limits[:, :, None, None])
            forecasts = np.concatenate([forecasts, of_logs], axis=1)
            growths = np.concatenate([growths, growths_of_logs], axis=1)
        for value, made, growth, season in zip(values, forecasts, growths, seasons, strict=True):
            self._compare(float(value))
            self.count, self.size = self.count + 1, max(self.size, abs(float(value)))
            if self.count >= FIRST_ORIGIN:
                weights = self._weights()[0]
                self.made.appendleft(np.concatenate([made, weights[None] @ made]))
                share = weights[self.arma] / weights[self.arma].sum()
                growth_of_all = np.sqrt(share @ growth**2)
                self.spread.tell(growth_of_all, LEAST_LOSS * self.size, self.count, season)

    def _compare(self, value: float) -> None:
        """All forecasts of a value are compared with it."""
        if not self.made:
            return
        told = np.stack([made[:, step] for step, made in enumerate(self.made)], axis=1)
        errors = np.abs(told - value)
        self.spread.learn(errors[-1], LEAST_LOSS * self.size, self.count)
        for sums, new in ((self.losses, errors[:-1]), (self.heard, 1.0)):
            sums *= LOSS_KEPT
            sums[..., : len(self.made)] += new

    @property
    def _power(self) -> float:
        return float(np.clip(self.count / VALUES_PER_POWER, LEAST_POWER, LARGEST_POWER))

    def _weights(self) -> tuple[np.ndarray, float, np.ndarray]:
        """The candidates' weights, the sum they were divided by, and the least mean loss at each step; NaN if none."""
        if not self.heard[0]:
            return np.full(len(self.losses), 1 / len(self.losses)), 1.0, np.full(self.horizon, np.nan)
        there = self.heard > 0
        losses = self.losses[:, there] / self.heard[there] + LEAST_LOSS * self.size
        smallest = losses.min(axis=0)
        raw = np.mean(losses / smallest, axis=1) ** -self._power
        least = np.full(self.horizon, np.nan)
        least[there] = smallest
        return raw / raw.sum(), float(raw.sum()), least

    def paths(self, drawn: np.ndarray) -> np.ndarray:
        """The mixture's paths (n, horizon), moved to the combination."""
        if not self.spread.known:
            return drawn
        low, high = np.quantile(drawn, [0.1587, 0.8413], axis=0)
        expected = (high - low) / 2
        _, total, least = self._weights()
        there = ~np.isnan(least)
        ratio = UNTESTED * np.mean(expected[there] / MEAN_TO_DEVIATION / least[there])
        raw = max(float(ratio), 1e-6) ** -self._power
        weight = raw / (raw + total)
        # forecasts h steps ahead share h - 1 of their steps with the next one: h errors count as one, and what the
        # mixture expects as one more; of logarithms, as a mixture that leaves for infinity expects any size
        told = self.spread.latest
        errors = np.where(np.isnan(told), 0.0, self.heard / np.arange(1, self.horizon + 1))
        told = np.where(np.isnan(told), expected, told)
        spread = np.exp((errors * np.log(told) + np.log(expected)) / (errors + 1))
        order = np.argsort(np.argsort(drawn, axis=0, kind="stable"), axis=0)
        stretched = self.spread.stretched(_normal_quantiles(len(drawn)))
        moved = self.made[0][-1] + spread * np.take_along_axis(stretched, order, axis=0)
        return (1 - weight) * moved + weight * drawn


def combined_paths(drawn: np.ndarray, past: Past, key: str, known: np.ndarray) -> np.ndarray:
    """The mixture's paths of the rows after the last one of a key, moved to the combination.

    `known` has the known values of this key in `past`, in the units of the paths.
    """
    count = past.counts.get(key, 0)
    first = max(count // STRETCH - 1, 0) * STRETCH
    known = known[-(count - first) :]
    if len(known) < FIRST_ORIGIN + LEAST_ERRORS or not (np.abs(known) < LARGEST_VALUE).all():
        return drawn
    return _kept(past, key, drawn.shape[1], first, known).paths(drawn)


def _kept(past: Past, key: str, horizon: int, first: int, known: np.ndarray) -> Combination:
    """The combination after the known values from `first` on: the one of the last forecast, if it can go on."""
    positive = bool((known > 0).all())
    held = _KEPT.setdefault(past, {})
    found = held.get(key)
    can_go_on = (
        found is not None
        and (found.horizon, found.first, found.positive) == (horizon, first, positive)
        and 0 < found.count <= len(known)
        and found.last == known[found.count - 1]
    )
    if found is None or not can_go_on:
        found = held[key] = Combination(horizon, first, positive)
    found.extend(known[found.count :])
    return found


@functools.cache
def _normal_quantiles(count: int) -> np.ndarray:
    """Those at (i + 1/2) / n, i = 0 .. n - 1."""
    return np.array([NormalDist().inv_cdf((place + 0.5) / count) for place in range(count)])
