"""Forecasts of several steps combined: the mixture's paths, and simple forecasts weighed by how they came true.

The members of the mixture are weighed by how they predict one row. Several rows ahead, simple forecasts are often
better. So the candidates (`candidates.py`) run through the known past of the series, many series at once where they
have the same length and periods. What each forecast at every origin is compared with what came, step by step:

    l(c, h) <- d l(c, h) + |y - forecast(c, h)|        d = 0.995, and n(h) <- d n(h) + 1
    r(c) = mean over h of l(c, h) / min_c l(c, h)      weight(c) ~ r(c)^-k

with k = 10 up to 200 values, and a twentieth of their number up to 20. The weighted mean of the candidates has errors
of its own, from which `error_spread` takes the spread at each step and the tails.

The mixture is one more candidate: the spread that it expects at each step stands for its errors, 1.2 times as large
because nobody has tested it. Its median moves the middle a little besides. Quantiles are averaged: a path at quantile u
of the mixture's paths becomes

    (1 - b) (mean(h) + spread(h) q(u)) + b path(h)     b the weight of the mixture

so steps of a path depend on each other as in the mixture, and where b is 1 nothing changes.
"""

import functools
from collections import deque
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from natkal.forecasting.candidates import Candidates, Copies, names, smoothed_places
from natkal.forecasting.error_spread import LEAST_ERRORS, MEAN_TO_DEVIATION, ErrorSpread
from natkal.forecasting.seasons import find_seasons

LEAST_POWER, LARGEST_POWER, VALUES_PER_POWER = 10.0, 20.0, 20
LOSS_KEPT = 0.995
UNTESTED = 1.2
"""The errors that the mixture expects count as so many times larger: they are not compared with what came."""
FIRST_ORIGIN = 24
PERIODS_BEFORE = 2
"""Values and periods before the first forecast is made: a season has to be known before it is judged."""
LEAST_LOSS = 1e-9
"""A loss counts as this at least, in units of the size of the values: that of a constant series is 0."""
LARGEST_LOG = 700.0
LARGEST_VALUE = 1e100
"""Larger values are not combined: their squares are no numbers."""
MIDDLE_SHARE = 0.05
"""The share of the mixture's median in the middle of the combination, which it moves by a part of the spread at most:
it knows other things than the candidates do. M4 hourly has 1 percent less error with it, CO2 0.3 percent more.
"""
STRETCH = 512
"""The past that is looked at begins at a multiple of this many values: 512 to 1,023 of them, or all there are."""
ORIGINS_AT_ONCE = 2048
"""So many forecasts are made in one call: values times series."""


class Combination:
    """The candidates on several series of the same length and periods, and how their forecasts came true."""

    def __init__(self, series: int, horizon: int, periods: tuple[int, ...], positive: bool):
        self.horizon, self.periods, self.positive = horizon, periods, positive
        self.first_origin = max(FIRST_ORIGIN, PERIODS_BEFORE * max(periods, default=0))
        self.names = names(periods, positive)
        self.copies = Copies(series, periods, horizon)
        self.scales = [Candidates(series, periods, horizon) for _ in range(1 + positive)]
        self.smoothed = smoothed_places(periods, positive)
        self.count, self.size = 0, np.full((series, 1), float(np.finfo(np.float32).tiny))
        self.losses, self.heard = np.zeros((series, len(self.names), horizon)), np.zeros(horizon)
        self.spread = ErrorSpread(series, max(periods, default=0), horizon)
        self.made: deque[np.ndarray] = deque(maxlen=horizon)
        """The last forecasts, newest first, (series, candidates + 1, steps): of the candidates and the combination."""

    def extend(self, values: np.ndarray) -> None:
        """More values of each series, (series, values), in order."""
        width = max(ORIGINS_AT_ONCE // len(values), 1)
        for first in range(0, values.shape[1], width):
            self._extend(values[:, first : first + width].T)

    def _extend(self, values: np.ndarray) -> None:
        unused = max(self.first_origin - 1 - self.count, 0)
        plain, copies = self.scales[0].extend(values, unused), self.copies.extend(values)
        logs = self.scales[1].extend(np.log(values), unused) if self.positive else None
        self.size = np.maximum(self.size, np.abs(values[:unused]).max(axis=0, initial=0.0)[:, None])
        self.count += min(unused, len(values))
        if plain is None:
            return
        forecasts, growths = [copies[unused:], plain.forecasts], [plain.growth]
        if logs is not None:
            low, high = plain.limits.transpose(1, 0, 2)[..., None, None]
            forecasts.append(np.clip(np.exp(np.minimum(logs.forecasts, LARGEST_LOG)), low, high))
            growths.append(logs.growth)
        together, growth_of_each = np.concatenate(forecasts, axis=2), np.concatenate(growths, axis=2)
        for value, made, growth in zip(values[unused:], together, growth_of_each, strict=True):
            self._compare(value)
            self.count, self.size = self.count + 1, np.maximum(self.size, np.abs(value)[:, None])
            weights = self._weights()[0]
            combined = np.einsum("sc,sch->sh", weights, made)
            self.made.appendleft(np.concatenate([made, combined[:, None]], axis=1))
            share = weights[:, self.smoothed]
            share = share / share.sum(axis=1, keepdims=True)
            growth_of_all = np.sqrt(np.einsum("sc,sch->sh", share, growth**2))
            self.spread.tell(growth_of_all, LEAST_LOSS * self.size, self.count)

    def _compare(self, value: np.ndarray) -> None:
        """All forecasts of a value of each series are compared with it."""
        if not self.made:
            return
        told = np.stack([made[:, :, step] for step, made in enumerate(self.made)], axis=2)
        errors = np.abs(told - value[:, None, None])
        self.spread.learn(errors[:, -1], LEAST_LOSS * self.size, self.count)
        for sums, new in ((self.losses, errors[:, :-1]), (self.heard, 1.0)):
            sums *= LOSS_KEPT
            sums[..., : len(self.made)] += new

    @property
    def _power(self) -> float:
        return float(np.clip(self.count / VALUES_PER_POWER, LEAST_POWER, LARGEST_POWER))

    def _weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The candidates' weights, the sums they were divided by, and the least mean loss at each step; NaN if none."""
        series, count = self.losses.shape[:2]
        least = np.full((series, self.horizon), np.nan)
        if not self.heard[0]:
            return np.full((series, count), 1 / count), np.ones(series), least
        there = self.heard > 0
        losses = self.losses[..., there] / self.heard[there] + LEAST_LOSS * self.size[:, None]
        smallest = losses.min(axis=1)
        raw = np.mean(losses / smallest[:, None], axis=2) ** -self._power
        least[:, there] = smallest
        total = raw.sum(axis=1)
        return raw / total[:, None], total, least

    def paths(self, drawn: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The mixture's paths (n, horizon) of each series, moved to the combination."""
        if not self.spread.known:
            return list(drawn)
        _, totals, least = self._weights()
        return [self._moved(series, own, float(totals[series]), least[series]) for series, own in enumerate(drawn)]

    def _moved(self, series: int, drawn: np.ndarray, total: float, least: np.ndarray) -> np.ndarray:
        low, high = np.quantile(drawn, [0.1587, 0.8413], axis=0)
        expected = (high - low) / 2
        there = ~np.isnan(least)
        ratio = UNTESTED * np.mean(expected[there] / MEAN_TO_DEVIATION / least[there])
        raw = max(float(ratio), 1e-6) ** -self._power
        weight = raw / (raw + total)
        # forecasts h steps ahead share h - 1 of their steps with the next one: h errors count as one, and what the
        # mixture expects as one more; of logarithms, as a mixture that leaves for infinity expects any size
        told = self.spread.latest[series]
        errors = np.where(np.isnan(told), 0.0, self.heard / np.arange(1, self.horizon + 1))
        told = np.where(np.isnan(told), expected, told)
        tiny = float(np.finfo(np.float64).tiny)
        spread = np.exp((errors * np.log(told + tiny) + np.log(expected + tiny)) / (errors + 1))
        order = np.argsort(np.argsort(drawn, axis=0, kind="stable"), axis=0)
        stretched = self.spread.stretched(_normal_quantiles(len(drawn)), series)
        made = self.made[0][series, -1]
        middle = made + MIDDLE_SHARE * np.clip(np.median(drawn, axis=0) - made, -spread, spread)
        moved = middle + spread * np.take_along_axis(stretched, order, axis=0)
        return (1 - weight) * moved + weight * drawn


def combined_paths(
    drawn: Sequence[np.ndarray], known: Sequence[np.ndarray], counts: Sequence[int], kept: "Kept | None" = None
) -> list[np.ndarray]:
    """The mixture's paths of the rows after the last one of each series, moved to the combination.

    `known` has the known values of each series, in the units of the paths, of `counts` that there were. With `kept` a
    forecast of one series goes on where its last one ended.
    """
    moved, groups = list(drawn), {}
    for place, (values, count) in enumerate(zip(known, counts, strict=True)):
        first = max(count // STRETCH - 1, 0) * STRETCH
        own = values[-(count - first) :] if count > first else values[:0]
        if len(own) >= FIRST_ORIGIN + LEAST_ERRORS and (np.abs(own) < LARGEST_VALUE).all():
            kind = (first, len(own), find_seasons(own), bool((own > 0).all()))
            groups.setdefault(kind, []).append((place, own))
    for (first, _, periods, positive), members in groups.items():
        values = np.stack([own for _, own in members])
        places = [place for place, _ in members]
        horizon = drawn[places[0]].shape[1]
        if kept is None:
            combination = Combination(len(values), horizon, periods, positive)
            combination.extend(values)
        else:
            combination = kept.follow(first, values, horizon, periods, positive)
        for place, paths in zip(places, combination.paths([drawn[place] for place in places]), strict=True):
            moved[place] = paths
    return moved


class Kept:
    """The combination of one series as far as it came: the next forecast goes on from there, with the same result."""

    def __init__(self) -> None:
        self._combination: Combination | None = None
        self._first, self._last = 0, np.nan

    def follow(
        self, first: int, values: np.ndarray, horizon: int, periods: tuple[int, ...], positive: bool
    ) -> Combination:
        """The combination after the known values (1, n) from number `first` on."""
        found = self._combination
        if (
            found is None
            or (found.horizon, found.periods, found.positive, self._first) != (horizon, periods, positive, first)
            or not 0 < found.count <= values.shape[1]
            or self._last != values[0, found.count - 1]
        ):
            found = Combination(1, horizon, periods, positive)
        if values.shape[1] > found.count:
            found.extend(values[:, found.count :])
        self._combination, self._first, self._last = found, first, float(values[0, -1])
        return found


@functools.cache
def _normal_quantiles(count: int) -> np.ndarray:
    """Those at (i + 1/2) / n, i = 0 .. n - 1."""
    return np.array([NormalDist().inv_cdf((place + 0.5) / count) for place in range(count)])
