"""Forecasts of several steps combined: the mixture's paths, and simple forecasts weighed by how they came true.

The members of the mixture are weighed by how they predict one row. Several rows ahead, simple forecasts are often
better. So the candidates of `simple_forecasts` and `seasonal_arma` (on the values, and on their logarithms where all
are positive) run through the known past of the series. What each forecast at every origin is compared with what came,
step by step:

    l(c, h) <- d l(c, h) + |y - forecast(c, h)|        d = 0.995, and n(h) <- d n(h) + 1
    r(c) = mean over h of l(c, h) / min_c l(c, h)      weight(c) ~ r(c)^-10

The weighted mean of the candidates has errors of its own, which are kept in the same way with d = 0.99: these give its
spread at each step. All of it is multiplied by v^0.7, where v is how large the last errors were, relative to that, in
the mean over the steps (d = 0.9, and three errors of relative size 1 before the first). The tails are those of a normal
law, stretched by a factor which is learned from the 90 percent intervals that came true (adaptive conformal inference,
Gibbs and Candes 2021, one factor for each step):

    t(h) <- t(h) + 0.06 (1 if y was outside else 0, less 0.1)
    q(u) = z(u) exp(t(h) min(|z(u)| / z(0.95), 1)^4)   z the normal quantile

The mixture is one more candidate: the spread that it expects at each step stands for its errors. Quantiles are
averaged: a path at quantile u of the mixture's paths becomes

    (1 - b) (mean(h) + spread(h) q(u)) + b path(h)     b the weight of the mixture

so steps of a path depend on each other as in the mixture, and where b is 1 nothing changes.
"""

import functools
from collections import deque
from statistics import NormalDist
from weakref import WeakKeyDictionary

import numpy as np

from natkal.tabular.past import Past
from natkal.tabular.seasonal_arma import ARMA_COUNT, SeasonalArma, roll_arma
from natkal.tabular.simple_forecasts import COUNT, SimpleForecasts, roll

POWER = 10.0
LOSS_KEPT, SPREAD_KEPT, RECENT_KEPT = 0.995, 0.99, 0.9
RECENT_BEFORE, LARGEST_RECENT, RECENT_POWER = 3.0, 10.0, 0.7
"""Errors of relative size 1 before the first, the largest relative size, and its power in the spread."""
TAIL_RATE, TAIL_POWER = 0.06, 4
LEAST_TAIL, LARGEST_TAIL = -0.2, 1.0
"""Limits of the logarithm of the factor: quantiles stay in order above -1/4."""
LEVEL_90 = NormalDist().inv_cdf(0.95)
SHARE_OUTSIDE = 0.1
FIRST_ORIGIN, LEAST_ERRORS = 24, 12
"""Values before the first forecast is made, and errors of one step without which the mixture's paths stay."""
LEAST_HEARD = (1 - SPREAD_KEPT**LEAST_ERRORS) / (1 - SPREAD_KEPT)
"""As many errors, faded."""
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


class Candidates:
    """All candidates on one scale of the values: as they are, or their logarithms."""

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.simple, self.arma = SimpleForecasts(horizon), SeasonalArma(horizon)

    def extend(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What they forecast after each of more values (values, candidates, steps), and limits (2, values)."""
        origins = [self.simple.learn(float(value)) for value in values]
        starts = [self.arma.learn(float(value), one.season) for value, one in zip(values, origins, strict=True)]
        limits = np.array([(origin.low, origin.high) for origin in origins]).T
        made = [roll(origins, self.horizon), roll_arma(starts, limits[0], limits[1], self.horizon)]
        return np.concatenate(made, axis=1), limits


class Combination:
    """The candidates on the values of one series, and how their forecasts came true."""

    def __init__(self, horizon: int, first: int, positive: bool):
        self.horizon, self.first, self.positive = horizon, first, positive
        self.scales = [Candidates(horizon) for _ in range(1 + positive)]
        count = (COUNT + ARMA_COUNT) * len(self.scales)
        self.count, self.size = 0, float(np.finfo(np.float32).tiny)
        self.losses, self.own = np.zeros((count, horizon)), np.zeros(horizon)
        self.heard, self.own_heard, self.tail = np.zeros((3, horizon))
        self.recent, self.recent_heard = RECENT_BEFORE, RECENT_BEFORE
        self.made: deque[np.ndarray] = deque(maxlen=horizon)
        """The last forecasts, newest first, (candidates + 2, steps): those of the candidates and of the combination,
        and half of the width of its 90 percent interval."""

    @property
    def last(self) -> float:
        """The last value."""
        return self.scales[0].simple.values[-1]

    def extend(self, values: np.ndarray) -> None:
        """More values, in order."""
        if not len(values):
            return
        forecasts, limits = self.scales[0].extend(values)
        if self.positive:
            logs = np.minimum(self.scales[1].extend(np.log(values))[0], LARGEST_LOG)
            forecasts = np.concatenate([forecasts, np.clip(np.exp(logs), *limits[:, :, None, None])], axis=1)
        for value, made in zip(values, forecasts, strict=True):
            self._compare(float(value))
            self.count, self.size = self.count + 1, max(self.size, abs(float(value)))
            if self.count >= FIRST_ORIGIN:
                width = LEVEL_90 * np.exp(self.tail) * self._spread
                self.made.appendleft(np.concatenate([made, self._weights()[0][None] @ made, width[None]]))

    def _compare(self, value: float) -> None:
        """All forecasts of a value are compared with it."""
        steps = np.arange(len(self.made))
        if not len(steps):
            return
        told = np.stack([made[:, step] for step, made in enumerate(self.made)], axis=1)
        errors, width = np.abs(told[:-1] - value), told[-1]
        outside = np.where(np.isnan(width), SHARE_OUTSIDE, errors[-1] > width)
        self.tail[steps] += TAIL_RATE * (outside - SHARE_OUTSIDE)
        self.tail = np.clip(self.tail, LEAST_TAIL, LARGEST_TAIL)
        self._hear_recent(errors[-1])
        for sums, kept, new in (
            (self.losses, LOSS_KEPT, errors[:-1]),
            (self.heard, LOSS_KEPT, 1.0),
            (self.own, SPREAD_KEPT, errors[-1]),
            (self.own_heard, SPREAD_KEPT, 1.0),
        ):
            sums *= kept
            sums[..., steps] += new

    def _hear_recent(self, errors: np.ndarray) -> None:
        """The combination's errors at the first steps, relative to those before."""
        enough = self.own_heard[: len(errors)] >= LEAST_HEARD
        if enough.any():
            before = (self.own / np.maximum(self.own_heard, 1.0))[: len(errors)] + LEAST_LOSS * self.size
            relative = min(float(np.mean((errors / before)[enough])), LARGEST_RECENT)
            self.recent = RECENT_KEPT * (self.recent - RECENT_BEFORE) + relative + RECENT_BEFORE
            self.recent_heard = RECENT_KEPT * (self.recent_heard - RECENT_BEFORE) + 1.0 + RECENT_BEFORE

    @property
    def _spread(self) -> np.ndarray:
        """The deviation of the combination's errors at each step; NaN where there are few."""
        deviation = MEAN_TO_DEVIATION * self.own / np.maximum(self.own_heard, 1.0)
        deviation = deviation * (self.recent / self.recent_heard) ** RECENT_POWER
        return np.where(self.own_heard >= LEAST_HEARD, deviation, np.nan)

    def _weights(self) -> tuple[np.ndarray, float, np.ndarray]:
        """The candidates' weights, the sum they were divided by, and the least mean loss at each step; NaN if none."""
        if not self.heard[0]:
            return np.full(len(self.losses), 1 / len(self.losses)), 1.0, np.full(self.horizon, np.nan)
        there = self.heard > 0
        losses = self.losses[:, there] / self.heard[there] + LEAST_LOSS * self.size
        smallest = losses.min(axis=0)
        raw = np.mean(losses / smallest, axis=1) ** -POWER
        least = np.full(self.horizon, np.nan)
        least[there] = smallest
        return raw / raw.sum(), float(raw.sum()), least

    def paths(self, drawn: np.ndarray) -> np.ndarray:
        """The mixture's paths (n, horizon), moved to the combination."""
        if self.own_heard[0] < LEAST_HEARD:
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
        errors = np.where(np.isnan(self._spread), 0.0, self.heard / np.arange(1, self.horizon + 1))
        spread = (errors * np.nan_to_num(self._spread) + expected) / (errors + 1)
        order = np.argsort(np.argsort(drawn, axis=0, kind="stable"), axis=0)
        normal = _normal_quantiles(len(drawn))[:, None]
        stretched = normal * np.exp(self.tail * np.minimum(np.abs(normal) / LEVEL_90, 1.0) ** TAIL_POWER)
        moved = self.made[0][-2] + spread * np.take_along_axis(stretched, order, axis=0)
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
