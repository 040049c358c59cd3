"""Earlier targets as inputs: the last few known values, and where the series has a period, those one period ago.

A series with a period also gets two seasonal means: the mean of the values 1, 2, .. periods before the next row, which
fades by `MEAN_RATE` per period, and the mean of the values just before each of those. Their difference is the step that
the season takes, with the noise of many periods averaged out.

Only what is known by then is used: a label that comes late counts from the row at which it came. Every key has a past
of its own. Numbers enter as they are (and are scaled like other inputs), two classes as -1 and 1, more as indicators.
The form is that of the classes there were room for at the start: one that comes later is 0 in all of them.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from natkal.tables.learner.period import LONGEST_PERIOD, SHORTEST_SERIES, find_period

RECENT_LAGS = (1, 2, 3)
SEASONAL_LAGS = 2
"""The value one period ago, and the one before it."""
SEASONAL_MEANS = 2
MEAN_RATE = 0.1
INDICATORS = 12
"""Classes of the last value that have an indicator of their own; the others share none."""
EARLY, EARLY_STEP = 144, 12
"""The period is looked for every 12 values up to 144 of them, and then whenever their number has doubled."""


class SeasonalMeans:
    """For each place of the period, sums of the values there and of those before them; older ones fade by `MEAN_RATE`.

    Both sums have the same weights, so that their difference is a mean of steps: a trend has no part in it but its own.
    """

    def __init__(self, period: int, values: Iterable[float] = ()):
        self.sums, self.previous, self.weights = np.zeros((3, period))
        self.count = 0
        self.last = np.nan
        for value in values:
            self.learn(value)

    @property
    def next(self) -> float:
        """The mean at the place of the next value."""
        place = self.count % len(self.sums)
        return float(self.sums[place] / self.weights[place]) if self.weights[place] else np.nan

    @property
    def before(self) -> float:
        """The mean of the values before those."""
        place = self.count % len(self.sums)
        return float(self.previous[place] / self.weights[place]) if self.weights[place] else np.nan

    def learn(self, value: float) -> None:
        """One more value; the first one has none before it and is left out."""
        place = self.count % len(self.sums)
        if self.count:
            for sums, new in ((self.sums, value), (self.previous, self.last), (self.weights, 1.0)):
                sums[place] = (1 - MEAN_RATE) * sums[place] + new
        self.last = value
        self.count += 1

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "sums": self.sums.tolist(),
            "previous": self.previous.tolist(),
            "weights": self.weights.tolist(),
            "count": self.count,
            "last": None if np.isnan(self.last) else self.last,
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "SeasonalMeans":
        """The inverse of `state`."""
        made = cls(len(state["sums"]))
        made.sums, made.previous = np.array(state["sums"], float), np.array(state["previous"], float)
        made.weights, made.count = np.array(state["weights"], float), int(state["count"])
        made.last = np.nan if state["last"] is None else float(state["last"])
        return made


class Past:
    """The known targets of one target column, key by key, and the inputs made of them."""

    def __init__(self, classes: int, lags: tuple[int, ...] | None):
        self.classes = classes
        self.named = lags
        self.lags = RECENT_LAGS if lags is None else lags
        self.season = 0
        self.known: dict[str, deque[float]] = {}
        self.counts: dict[str, int] = {}
        self.means: dict[str, SeasonalMeans] = {}

    @property
    def columns(self) -> int:
        """How many inputs the past makes."""
        if self.classes > 2:
            return min(len(self.lags), 2) * min(self.classes, INDICATORS)
        if self.named is not None:
            return len(self.lags)
        return len(self.lags) + SEASONAL_LAGS + (SEASONAL_MEANS if self.classes == 0 else 0)

    @property
    def scaled(self) -> list[bool]:
        """Which of them are plain numbers."""
        return [self.classes == 0] * self.columns

    @property
    def naive(self) -> tuple[float, ...]:
        """The weights of a naive forecast: the last value and the step of the seasonal means; none if it is no input.

        Where a series has no period yet, the step is missing, that is 0, and the forecast is the last value.
        """
        if self.classes or self.named is not None or 1 not in self.lags:
            return ()
        weights = np.zeros(self.columns)
        weights[self.lags.index(1)] = 1.0
        weights[-SEASONAL_MEANS:] = 1.0, -1.0
        return tuple(weights.tolist())

    def inputs(self, key: str = "") -> np.ndarray:
        """The inputs of the next row of this key; NaN, that is missing, where there is no value yet."""
        known = self.known.get(key)
        history = np.array(
            [known[-lag] for lag in range(min(len(known), max(self.used_lags, default=0)), 0, -1)] if known else []
        )
        made = self._inputs(history, np.array([len(history)]))[0]
        means = self.means.get(key) if self.season else None
        if means is not None:
            made[-SEASONAL_MEANS:] = means.next, means.before
        return made

    @property
    def used_lags(self) -> list[int]:
        """The lags in use now; 0 for one that waits for a period."""
        if self.classes > 2:
            return [*self.lags[:2]]
        if self.named is not None:
            return [*self.lags]
        return [*self.lags, *(self.season + step if self.season else 0 for step in range(SEASONAL_LAGS))]

    def _inputs(self, history: np.ndarray, places: np.ndarray) -> np.ndarray:
        """The inputs of rows before which the first `places` entries of the history are known, without the means."""
        lags = np.array(self.used_lags, int)
        at = places[:, None] - lags[None]
        there = (at >= 0) & (lags > 0)[None]
        values = np.where(there, np.append(history, np.nan)[np.where(there, at, len(history))], np.nan)
        if self.classes == 0:
            return np.concatenate([values, np.full((len(places), self.columns - len(lags)), np.nan)], axis=1)
        if self.classes == 2:
            return np.nan_to_num(np.where(values < 2, 2.0 * values - 1.0, 0.0))
        width = min(self.classes, INDICATORS)
        return (values[:, :, None] == np.arange(width)).astype(float).reshape(len(places), -1)

    def learn(self, value: float, key: str = "") -> None:
        """One more known target; a missing one repeats nothing and is left out."""
        known = self.known.setdefault(key, deque(maxlen=self._longest))
        known.append(value)
        count = self.counts[key] = self.counts.get(key, 0) + 1
        if self._is_due(count):
            self.season = find_period(np.array(known))
        if self.season:
            means = self.means.get(key)
            if means is None or len(means.sums) != self.season:
                self.means[key] = SeasonalMeans(self.season, known)
            else:
                means.learn(value)
        else:
            self.means.pop(key, None)

    def _is_due(self, count: int) -> bool:
        """Whether the period is looked for after so many values."""
        if self.named is not None or self.classes or count < SHORTEST_SERIES:
            return False
        often = count % EARLY_STEP == 0 if count <= EARLY else count & (count - 1) == 0
        return often or count % (2 * LONGEST_PERIOD) == 0

    def rows(self, targets: np.ndarray, keys: Sequence[str]) -> np.ndarray:
        """The inputs of consecutive rows whose targets become known one after the other (NaN: not known)."""
        if not self.columns or np.isnan(targets).all():
            return self.asked(len(targets), keys)
        made = np.empty((len(targets), self.columns))
        first = 0
        while first < len(targets):
            if keys or self.season:
                key = keys[first] if keys else ""
                made[first] = self.inputs(key)
                if targets[first] == targets[first]:
                    self.learn(float(targets[first]), key)
                first += 1
            else:
                first = self._rows_at_once(targets, first, made)
        return made

    def asked(self, count: int, keys: Sequence[str]) -> np.ndarray:
        """The inputs of so many rows, each as if it came next."""
        if not self.columns or not count:
            return np.zeros((count, self.columns))
        return np.stack([self.inputs(keys[row]) for row in range(count)] if keys else [self.inputs()] * count)

    def _rows_at_once(self, targets: np.ndarray, first: int, made: np.ndarray) -> int:
        """`rows` from `first` on, without a period, up to the row after which one is looked for; the row after it."""
        count = self.counts.get("", 0)
        due = next((more for more in range(1, len(targets) - first + 1) if self._is_due(count + more)), None)
        there = ~np.isnan(targets[first:])
        reached = np.flatnonzero(np.cumsum(there) == due) if due else np.zeros(0, int)
        last = first + int(reached[0]) + 1 if len(reached) else len(targets)
        there = there[: last - first]
        new = targets[first:last][there]
        known = self.known.setdefault("", deque(maxlen=self._longest))
        made[first:last] = self._inputs(np.concatenate([np.array(known), new]), len(known) + np.cumsum(there) - there)
        if len(new):
            known.extend(new[:-1].tolist())
            self.counts[""] = count + len(new) - 1
            self.learn(float(new[-1]))
        return last

    @property
    def _longest(self) -> int:
        return max([*self.lags, 2 * LONGEST_PERIOD + 2])

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: plain lists and numbers."""
        return {
            "classes": self.classes,
            "season": self.season,
            "counts": self.counts,
            "known": {key: list(values) for key, values in self.known.items()},
            "means": {key: means.state() for key, means in self.means.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self.classes = int(state["classes"])
        self.season = int(state["season"])
        self.counts = {str(key): int(count) for key, count in state["counts"].items()}
        self.known = {
            str(key): deque((float(value) for value in values), maxlen=self._longest)
            for key, values in state["known"].items()
        }
        self.means = {str(key): SeasonalMeans.restored(means) for key, means in state["means"].items()}
