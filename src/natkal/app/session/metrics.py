"""How well it went, target by target, window by window, beside a baseline that learns online too.

Sums are taken over whole windows, whose edges depend on the row number alone: the figures do not depend on how the rows
were cut into blocks, to the last bit.
"""

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from natkal.tabular.schema import Target

LEVEL = 0.9
"""Coverage of the intervals that are written and scored."""
BINS = 10
RECENT = 240
"""How many of the last rows are kept for pictures."""
SMALLEST, LARGEST = 64, 16384


def next_edge(row: int, every: int | None = None) -> int:
    """The row count at which the window that `row` rows have reached into ends: 64 rows at first, n/32 later on."""
    size = every or min(max(SMALLEST, 1 << max(row.bit_length() - 6, 0)), LARGEST)
    return (row // size + 1) * size


def interval(target: Target, summary: np.ndarray, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of this coverage in the user's units, from (centre, spread) of each row."""
    centre, spread = summary[:, 0], summary[:, 1]
    z = NormalDist().inv_cdf(0.5 + level / 2)
    if target.task == "count":
        # Wilson and Hilferty's cube for the Gamma law with this mean and spread.
        ninth = np.square(spread / centre) / 9
        low, high = (centre * np.maximum(1 - ninth + side * z * np.sqrt(ninth), 0.0) ** 3 for side in (-1, 1))
        return np.floor(low), np.ceil(high)
    low, high = centre - z * spread, centre + z * spread
    return (np.exp(low), np.exp(high)) if target.task == "positive" else (low, high)


def point(target: Target, summary: np.ndarray) -> np.ndarray:
    """One value to bet on: the most probable class, the median of a positive target, the mean of any other."""
    if target.task == "binary":
        return (summary[:, 0] > 0.5).astype(np.float64)
    if target.task == "multiclass":
        return summary.argmax(axis=1).astype(np.float64)
    return np.exp(summary[:, 0]) if target.task == "positive" else summary[:, 0]


class TargetMetrics:
    """The running figures of one target."""

    def __init__(self, target: Target):
        self.target = target
        classes = len(target.classes)
        self.classes = classes
        self.totals: dict[str, float] = {}
        self.scored = 0
        self.counts = np.zeros(classes, np.int64)
        self.sums = np.zeros(3)
        self.calibration = np.zeros((BINS, 3))

    @property
    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps of the baseline and the calibration table."""
        return {"counts": self.counts, "sums": self.sums, "calibration": self.calibration}

    def window(self, summary: np.ndarray, log_prob: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """Figures of one whole window, also added to the totals. Rows without a target are not scored."""
        base_log_prob, base_point = self._baseline(y)
        known = ~np.isnan(y) & np.isfinite(log_prob)
        count = int(known.sum())
        if not count:
            return {}
        summary, log_prob, y = summary[known], log_prob[known], y[known]
        base_log_prob, base_point = base_log_prob[known], base_point[known]
        guess = point(self.target, summary)
        sums = {"log_loss": -log_prob.sum(), "baseline_log_loss": -base_log_prob.sum()}
        if self.classes:
            sums |= {"accuracy": (guess == y).sum(), "baseline_accuracy": (base_point == y).sum()}
        else:
            low, high = interval(self.target, summary)
            sums |= {
                "mean_absolute_error": np.abs(guess - y).sum(),
                "mean_squared_error": np.square(guess - y).sum(),
                "baseline_mean_absolute_error": np.abs(base_point - y).sum(),
                "coverage_90": ((low <= y) & (y <= high)).sum(),
            }
        self._calibrate(summary, y)
        self.scored += count
        for name, value in sums.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(value)
        return {name: float(value) / count for name, value in sums.items()}

    def summary(self) -> dict[str, Any]:
        """Figures over all rows so far."""
        means = {name: value / self.scored for name, value in self.totals.items()}
        if "mean_squared_error" in means:
            means["root_mean_squared_error"] = math.sqrt(means["mean_squared_error"])
        return {"target": self.target.name, "task": self.target.task, "rows": self.scored, **means}

    def _baseline(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Class frequencies so far, or the mean and variance so far: log p and the guess, from earlier rows alone."""
        present = ~np.isnan(y)
        if self.classes:
            return self._frequencies(y, present)
        measured = np.log(y) if self.target.task == "positive" else y
        parts = np.stack([present, np.where(present, measured, 0), np.where(present, measured**2, 0)], axis=1)
        running = np.cumsum(np.concatenate([self.sums[None], parts]), axis=0)
        self.sums = running[-1].copy()
        n, first, second = (running[:-1, i] for i in range(3))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = first / n
            variance = np.maximum(second / n - mean**2, 1e-12 * (1 + mean**2))
            log_prob = -0.5 * (np.log(2 * np.pi * variance) + (measured - mean) ** 2 / variance)
            if self.target.task == "positive":
                return np.where(n > 1, log_prob - measured, 0.0), np.where(n > 0, np.exp(mean), 1.0)
            if self.target.task == "count":
                rate = np.where(n > 0, np.maximum(mean, 1e-3), 1.0)
                factorial = np.array([math.lgamma(value + 1) if value == value else 0.0 for value in y])
                return np.nan_to_num(y) * np.log(rate) - rate - factorial, rate
        return np.where(n > 1, log_prob, 0.0), np.where(n > 0, mean, 0.0)

    def _frequencies(self, y: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log of (1 + how often the class came before) / (classes + rows before), and the most frequent class."""
        chosen, most, guess = np.ones(len(y)), np.zeros(len(y)), np.zeros(len(y))
        for number in range(self.classes):
            came = y == number
            before = 1 + self.counts[number] + np.cumsum(came) - came
            chosen[came] = before[came]
            guess[before > most] = number
            most = np.maximum(most, before)
            self.counts[number] += np.count_nonzero(came)
        rows = self.classes + self.counts.sum() - np.count_nonzero(present) + np.cumsum(present) - present
        return np.log(chosen / rows), guess

    def _calibrate(self, summary: np.ndarray, y: np.ndarray) -> None:
        """Rows, mean probability and hits in each tenth of probability; for numbers, rows in each tenth of the law."""
        if self.classes:
            probability = summary[:, 0] if self.classes == 2 else summary.max(axis=1)
            hit = y if self.classes == 2 else (summary.argmax(axis=1) == y).astype(np.float64)
            where = np.clip((probability * BINS).astype(int), 0, BINS - 1)
            for column, values in enumerate((np.ones_like(probability), probability, hit)):
                self.calibration[:, column] += np.bincount(where, values, BINS)
            return
        measured = np.log(y) if self.target.task == "positive" else y
        z = (measured - summary[:, 0]) / summary[:, 1]
        edges = [NormalDist().inv_cdf(share / BINS) for share in range(1, BINS)]
        self.calibration[:, 0] += np.bincount(np.searchsorted(edges, z), minlength=BINS)


class Metrics:
    """All targets, window by window."""

    def __init__(
        self, targets: tuple[Target, ...], sizes: tuple[int, ...], members: list[str], every: int | None = None
    ):
        self.members = members
        self.parts = [TargetMetrics(target) for target in targets]
        self._edges = np.cumsum([0, *sizes])
        self.every = every
        self.row = 0
        self.last_edge = 0
        width = int(self._edges[-1]) + 2 * len(targets) + len(members)
        self.open = np.zeros((0, width))
        self.recent = np.zeros((0, width))

    def to_edge(self) -> int:
        """How many more rows the open window takes."""
        return next_edge(self.row, self.every) - self.row

    def add(self, rows: np.ndarray) -> dict[str, int | float] | None:
        """Rows, at most `to_edge` of them, and the figures of the window if they complete it.

        A row holds summaries, log p and value of every target, and then what is told of the members.
        """
        edge = next_edge(self.row, self.every)
        self.open = np.concatenate([self.open, rows])
        self.recent = np.concatenate([self.recent, rows[-RECENT:]])[-RECENT:]
        self.row += len(rows)
        return self.close() if self.row == edge else None

    def close(self) -> dict[str, int | float] | None:
        """The figures of the open window, whole or not, which then is closed."""
        if not len(self.open):
            return None
        figures: dict[str, int | float] = {"row": self.row, "rows": len(self.open)}
        for position, part in enumerate(self.parts):
            prefix = f"{part.target.name}." if len(self.parts) > 1 else ""
            for name, value in part.window(*self.columns(self.open, position)).items():
                figures[prefix + name] = value
        first = self.open.shape[1] - len(self.members)
        figures |= dict(zip(self.members, self.open[:, first:].mean(axis=0).tolist(), strict=True))
        self.open = self.open[:0]
        self.last_edge = self.row
        return figures

    def columns(self, rows: np.ndarray, position: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Summary, log p and value of one target."""
        first, last = int(self._edges[position]), int(self._edges[position + 1])
        base = int(self._edges[-1])
        return rows[:, first:last], rows[:, base + position], rows[:, base + len(self.parts) + position]

    @property
    def names(self) -> list[str]:
        """The columns of the metrics file."""
        names = ["row", "rows"]
        for part in self.parts:
            prefix = f"{part.target.name}." if len(self.parts) > 1 else ""
            own = ["log_loss", "baseline_log_loss"]
            own += (
                ["accuracy", "baseline_accuracy"]
                if part.classes
                else ["mean_absolute_error", "mean_squared_error", "baseline_mean_absolute_error", "coverage_90"]
            )
            names += [prefix + name for name in own]
        return names + self.members
