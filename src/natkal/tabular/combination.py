"""Forecasts of several steps combined: the mixture's paths, and simple forecasts weighed by how they came true.

The members of the mixture are weighed by how they predict one row. Several rows ahead, simple forecasts are often
better. So the candidates of `simple_forecasts` (on the values, and on their logarithms where all are positive) run
through the known past of the series. What each forecast at every origin is compared with what came, step by step:

    l(c, h) <- d l(c, h) + |y - forecast(c, h)|        d = 0.995, and n(h) <- d n(h) + 1
    r(c) = mean over h of l(c, h) / min_c l(c, h)      weight(c) ~ r(c)^-6

The weighted mean of the candidates has errors of its own, which are kept in the same way with d = 0.99: these give its
spread at each step. The mixture is one more candidate: the spread that it expects at each step stands for its errors.
Quantiles are averaged: a path at quantile u of the mixture's paths becomes

    (1 - b) (mean(h) + spread(h) z(u)) + b path(h)     b the weight of the mixture, z the normal quantile

so steps of a path depend on each other as in the mixture, and where b is 1 nothing changes.
"""

import functools
from collections import deque
from statistics import NormalDist
from weakref import WeakKeyDictionary

import numpy as np

from natkal.tabular.past import Past
from natkal.tabular.simple_forecasts import COUNT, SimpleForecasts, roll

POWER = 6.0
LOSS_KEPT, SPREAD_KEPT = 0.995, 0.99
FIRST_ORIGIN, LEAST_ERRORS = 24, 12
"""Values before the first forecast is made, and errors of one step without which the mixture's paths stay."""
MEAN_TO_DEVIATION = float(np.sqrt(np.pi / 2))
"""The deviation of a normal law over its mean absolute value."""
LEAST_LOSS = 1e-9
"""A loss counts as this at least, in units of the size of the values: that of a constant series is 0."""
LARGEST_LOG = 700.0
LARGEST_VALUE = 1e100
"""Larger values are not combined: their squares are no numbers."""
STRETCH = 512
"""The past that is looked at begins at a multiple of this many values: 512 to 1,023 of them, or all there are."""


_KEPT: "WeakKeyDictionary[Past, dict[str, Combination]]" = WeakKeyDictionary()
"""Combinations as far as they came, key by key: the next forecast goes on from there, with the same result."""


class Combination:
    """The candidates on the values of one series, and how their forecasts came true."""

    def __init__(self, horizon: int, first: int, positive: bool):
        self.horizon, self.first, self.positive = horizon, first, positive
        self.series = [SimpleForecasts(horizon) for _ in range(1 + positive)]
        count = COUNT * len(self.series)
        self.count = 0
        self.losses, self.own = np.zeros((count, horizon)), np.zeros(horizon)
        self.heard, self.own_heard = np.zeros(horizon), np.zeros(horizon)
        self.made: deque[np.ndarray] = deque(maxlen=horizon)
        """The last forecasts, newest first: those of the candidates and of the combination, (candidates + 1, steps)."""

    def extend(self, values: np.ndarray) -> None:
        """More values, in order."""
        if not len(values):
            return
        origins = [self.series[0].learn(float(value)) for value in values]
        forecasts = roll(origins, self.horizon)
        if self.positive:
            logs = roll([self.series[1].learn(float(value)) for value in np.log(values)], self.horizon)
            low, high = np.array([(origin.low, origin.high) for origin in origins]).T[:, :, None, None]
            forecasts = np.concatenate([forecasts, np.clip(np.exp(np.minimum(logs, LARGEST_LOG)), low, high)], axis=1)
        for value, made in zip(values, forecasts, strict=True):
            self._compare(float(value))
            self.count += 1
            if self.count >= FIRST_ORIGIN:
                self.made.appendleft(np.concatenate([made, self._weights()[0][None] @ made]))

    def _compare(self, value: float) -> None:
        """All forecasts of a value are compared with it."""
        steps = np.arange(len(self.made))
        if not len(steps):
            return
        errors = np.abs(np.stack([made[:, step] for step, made in enumerate(self.made)], axis=1) - value)
        for sums, kept, new in (
            (self.losses, LOSS_KEPT, errors[:-1]),
            (self.heard, LOSS_KEPT, 1.0),
            (self.own, SPREAD_KEPT, errors[-1]),
            (self.own_heard, SPREAD_KEPT, 1.0),
        ):
            sums *= kept
            sums[..., steps] += new

    def _weights(self) -> tuple[np.ndarray, float, np.ndarray]:
        """The candidates' weights, the sum they were divided by, and the least mean loss at each step; NaN if none."""
        if not self.heard[0]:
            return np.full(len(self.losses), 1 / len(self.losses)), 1.0, np.full(self.horizon, np.nan)
        there = self.heard > 0
        losses = self.losses[:, there] / self.heard[there] + LEAST_LOSS * self.series[0].size
        smallest = losses.min(axis=0)
        raw = np.mean(losses / smallest, axis=1) ** -POWER
        least = np.full(self.horizon, np.nan)
        least[there] = smallest
        return raw / raw.sum(), float(raw.sum()), least

    def paths(self, drawn: np.ndarray) -> np.ndarray:
        """The mixture's paths (n, horizon), moved to the combination."""
        if self.own_heard[0] < LEAST_ERRORS * SPREAD_KEPT**LEAST_ERRORS:
            return drawn
        low, high = np.quantile(drawn, [0.1587, 0.8413], axis=0)
        expected = (high - low) / 2
        _, total, least = self._weights()
        there = ~np.isnan(least)
        ratio = np.mean(expected[there] / MEAN_TO_DEVIATION / least[there])
        raw = max(float(ratio), 1e-6) ** -POWER
        weight = raw / (raw + total)
        # forecasts h steps ahead share h - 1 of their steps with the next one: h errors count as one, and what the
        # mixture expects as one more
        errors = 1 + self.own_heard / np.arange(1, self.horizon + 1)
        realised = MEAN_TO_DEVIATION * self.own / np.maximum(self.own_heard, 1e-9)
        spread = ((errors - 1) * realised + expected) / errors
        order = np.argsort(np.argsort(drawn, axis=0, kind="stable"), axis=0)
        moved = self.made[0][-1] + spread * _normal_quantiles(len(drawn))[order]
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
        and found.series[0].values[-1] == known[found.count - 1]
    )
    if found is None or not can_go_on:
        found = held[key] = Combination(horizon, first, positive)
    found.extend(known[found.count :])
    return found


@functools.cache
def _normal_quantiles(count: int) -> np.ndarray:
    """Those at (i + 1/2) / n, i = 0 .. n - 1."""
    return np.array([NormalDist().inv_cdf((place + 0.5) / count) for place in range(count)])
