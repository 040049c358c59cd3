"""How well it went, target by target, window by window, beside two baselines that learn online too.

The baselines are the class frequencies or the running mean so far, and "same as last time". Sums are taken over whole
windows, whose edges depend on the row number alone: the figures do not depend on how the rows were cut into blocks, to
the last bit.

The very first value of a target of numbers counts as no error, for the baselines too: nothing is known of its size
before it came, and where values are far from 0 it would outweigh all others.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from natkal.runs import class_scores
from natkal.storage.parts import Field, Numbers, StoredPart, StoredParts, by_name, each, text, whole
from natkal.tables.engine.batch import TargetPrediction
from natkal.tables.learner.tasks import point_of
from natkal.tables.schema.infer import Target
from natkal.tables.schema.times import moment_at

BINS = 10
RECENT = 240
"""How many of the last rows are kept for pictures."""
SMALLEST, LARGEST = 64, 16384
LOW_RANK, HIGH_RANK = 0.05, 0.95
SMALLEST_CONFIDENCE = 0.5


class Record(NamedTuple):
    """What is kept of each row and target, as columns: the guess (a class number or a value), its confidence (a
    probability) or spread, the limits, log p and P(Y <= y) of what came, and what came.
    """

    guess: np.ndarray
    spread: np.ndarray
    low: np.ndarray
    high: np.ndarray
    log_prob: np.ndarray
    rank: np.ndarray
    observed: np.ndarray


COLUMNS = len(Record._fields)
ARRAYS = ("counts", "sums", "last", "repeats", "calibration", "confusion", "scores")
"""What is kept of the figures of a target beside their sums."""


def next_edge(row: int, every: int | None = None) -> int:
    """The row count at which the window that `row` rows have reached into ends: 64 rows at first, n/32 later on."""
    size = every or min(max(SMALLEST, 1 << max(row.bit_length() - 6, 0)), LARGEST)
    return (row // size + 1) * size


def written(name: str, value: int | float) -> str:
    """A figure as the metrics file has it: the time of a window's last row as a date, numbers to the last bit."""
    return moment_at(value).isoformat() if name == "time" else repr(value)


def record(target: Target, outcome: TargetPrediction, observed: np.ndarray) -> Record:
    """The columns of some rows of one target."""
    guess = point_of(target.task, outcome)
    spread = np.asarray(outcome.spread)
    if target.classes:
        shown = outcome.probabilities
        spread = shown[:, 1] if len(target.classes) == 2 else shown.max(axis=1)
    return Record(guess, spread, outcome.low, outcome.high, outcome.log_prob, outcome.rank, observed)


class TargetMetrics(StoredParts):
    """The running figures of one target."""

    def __init__(self, target: Target):
        self.target = target
        self.totals: dict[str, float] = {}
        self.scored = 0
        self.counts = np.zeros(max(len(target.classes), 0), np.int64)
        self.sums = np.zeros(3)
        self.last = np.full(1, np.nan)
        self.repeats = np.ones(2)
        self.calibration = np.zeros((BINS, 3))
        self.confusion = class_scores.empty_confusion() if target.classes else np.zeros((0, 0))
        self.scores = class_scores.empty_scores() if target.classes else np.zeros((0, 0))

    @property
    def classes(self) -> int:
        """How many classes have been seen; 0 for numbers."""
        return len(self.target.classes)

    def stored_parts(self) -> dict[str, StoredPart]:
        """The sums, the baselines and the calibration table."""
        arrays: dict[str, StoredPart] = {
            name: Numbers(self, name, (None,) if name == "counts" else getattr(self, name).shape) for name in ARRAYS
        }
        totals = Field(self, "totals", by_name(float), lambda own: {name: repr(value) for name, value in own.items()})
        return {"totals": totals, "scored": Field(self, "scored", whole), **arrays}

    def window(self, rows: Record) -> dict[str, float]:
        """Figures of one whole window, also added to the totals. Rows without a target are not scored."""
        y = rows.observed
        base_log_prob, base_point = self._baseline(y)
        before = np.concatenate([self.last, y])[:-1]
        known = ~np.isnan(y)
        filled = _filled_forward(before)
        again_log_prob = self._same_again(y, filled) if self.target.classes else None
        if known.any():
            self.last = y[known][-1:].copy()
        count = int(known.sum())
        if not count:
            return {}
        rows = Record(*(column[known] for column in rows))
        y, base_log_prob, base_point, filled = y[known], base_log_prob[known], base_point[known], filled[known]
        sums: dict[str, Any] = {"log_loss": -rows.log_prob.sum(), "baseline_log_loss": -base_log_prob.sum()}
        if self.target.classes:
            assert again_log_prob is not None
            sums["last_log_loss"] = -again_log_prob[known].sum()
            sums |= {"accuracy": (rows.guess == y).sum(), "baseline_accuracy": (base_point == y).sum()}
            sums["last_accuracy"] = (filled == y).sum()
        else:
            guess = np.where(np.isfinite(rows.guess), rows.guess, base_point)
            last = np.where(np.isnan(filled), base_point, filled)
            for name, value in (("", guess), ("baseline_", base_point), ("last_", last)):
                error = value - y
                error[: int(not self.scored)] = 0.0
                sums[f"{name}mean_absolute_error"] = np.abs(error).sum()
                sums[f"{name}mean_squared_error"] = np.square(error).sum()
            sums["coverage_90"] = ((rows.rank >= LOW_RANK) & (rows.rank <= HIGH_RANK)).sum()
        self._calibrate(rows, y)
        self.scored += count
        for name, value in sums.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(value)
        return {name: float(value) / count for name, value in sums.items()}

    def summary(self) -> dict[str, Any]:
        """Figures over all rows so far."""
        means = {name: value / self.scored for name, value in self.totals.items()}
        for prefix in ("", "baseline_", "last_"):
            if f"{prefix}mean_squared_error" in means:
                means[f"{prefix}root_mean_squared_error"] = math.sqrt(means[f"{prefix}mean_squared_error"])
        if means.get("baseline_mean_squared_error"):
            for prefix in ("", "last_"):
                share = means[f"{prefix}mean_squared_error"] / means["baseline_mean_squared_error"]
                means[f"{prefix}r2"] = 1 - share
        area = class_scores.auc(self.scores) if self.classes == 2 else None
        areas = {} if area is None else {"auc": area}
        return {"target": self.target.name, "task": self.target.task, "rows": self.scored, **means, **areas}

    def _baseline(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Class frequencies so far, or the mean and variance so far: log p and the guess, from earlier rows alone."""
        present = ~np.isnan(y)
        if self.target.classes:
            return self._frequencies(y, present)
        measured = np.log(y) if self.target.task == "positive" else y
        parts = np.stack([present, np.where(present, measured, 0), np.where(present, measured**2, 0)], axis=1)
        running = np.cumsum(np.concatenate([self.sums[None], parts]), axis=0)
        self.sums = running[-1].copy()
        n, first, second = (running[:-1, i] for i in range(3))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
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
        top = int(np.nanmax(y)) + 1 if present.any() else 0
        if max(top, self.classes) > len(self.counts):
            self.counts = np.pad(self.counts, (0, max(top, self.classes) - len(self.counts)))
        chosen, most, guess = np.ones(len(y)), np.zeros(len(y)), np.zeros(len(y))
        classes = len(self.counts)
        for number in range(classes):
            came = y == number
            before = 1 + self.counts[number] + np.cumsum(came) - came
            chosen[came] = before[came]
            guess[before > most] = number
            most = np.maximum(most, before)
            self.counts[number] += np.count_nonzero(came)
        rows = classes + self.counts.sum() - np.count_nonzero(present) + np.cumsum(present) - present
        return np.log(chosen / rows), guess

    def _same_again(self, y: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Log p of "the same class as last time" with the probability of a repeat so far, else any other class."""
        known = ~np.isnan(y) & ~np.isnan(before)
        same = known & (y == before)
        repeated = self.repeats[0] + np.cumsum(same) - same
        changed = self.repeats[1] + np.cumsum(known & ~same) - (known & ~same)
        self.repeats = self.repeats + np.array([np.count_nonzero(same), np.count_nonzero(known & ~same)])
        share = repeated / (repeated + changed)
        others = max(len(self.counts) - 1, 1)
        return np.where(known, np.log(np.where(same, share, (1 - share) / others)), -math.log(others + 1))

    def _calibrate(self, rows: Record, y: np.ndarray) -> None:
        """Rows, mean probability and hits in each tenth of probability; for numbers, rows in each tenth of the law."""
        if self.target.classes:
            hit = y if self.classes == 2 else (rows.guess == y).astype(np.float64)
            where = np.clip((rows.spread * BINS).astype(int), 0, BINS - 1)
            for column, values in enumerate((np.ones_like(hit), rows.spread, hit)):
                self.calibration[:, column] += np.bincount(where, values, BINS)
            class_scores.count_confusion(self.confusion, y, rows.guess)
            if self.classes == 2:
                class_scores.count_scores(self.scores, y, rows.spread)
            return
        where = np.clip((np.nan_to_num(rows.rank, nan=0.5) * BINS).astype(int), 0, BINS - 1)
        self.calibration[:, 0] += np.bincount(where, minlength=BINS)


class Metrics(StoredParts):
    """All targets, window by window. `series` holds every window's figures, as the metrics file does."""

    def __init__(self, targets: tuple[Target, ...], members: list[str], every: int | None = None):
        self.parts = [TargetMetrics(target) for target in targets]
        self.every = every
        self.row = 0
        self.members = members

    @property
    def members(self) -> list[str]:
        """What is told of the members in each row."""
        return self._members

    @members.setter
    def members(self, members: list[str]) -> None:
        self._members = members
        self.open = np.zeros((0, COLUMNS * len(self.parts) + 1 + len(members)))
        self.recent = self.open

    def stored_parts(self) -> dict[str, StoredPart]:
        """The open window, the last rows, and the figures of each target by its place."""
        width = self.open.shape[1]
        return {
            "row": Field(self, "row", whole),
            "members": Field(self, "members", each(text)),
            "open": Numbers(self, "open", (None, width)),
            "recent": Numbers(self, "recent", (None, width)),
            **{str(place): part for place, part in enumerate(self.parts)},
        }

    def to_edge(self) -> int:
        """How many more rows the open window takes."""
        return next_edge(self.row, self.every) - self.row

    def add(self, rows: np.ndarray) -> dict[str, int | float] | None:
        """Rows, at most `to_edge` of them, and the figures of the window if they complete it.

        A row holds the `Record` of every target, its time in seconds (NaN where it has none), and what is told of the
        members.
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
            for name, value in part.window(self.columns(self.open, position)).items():
                figures[prefix + name] = value
        first = self.open.shape[1] - len(self.members)
        if np.isfinite(self.open[-1, first - 1]):
            figures["time"] = float(self.open[-1, first - 1])
        figures |= dict(zip(self.members, self.open[:, first:].mean(axis=0).tolist(), strict=True))
        self.open = self.open[:0]
        return figures

    def columns(self, rows: np.ndarray, position: int) -> Record:
        """The record of one target."""
        return Record(*rows[:, COLUMNS * position : COLUMNS * (position + 1)].T)

    @property
    def recent_times(self) -> np.ndarray:
        """The times of the last rows, in seconds since 1970; NaN where they have none."""
        return self.recent[:, COLUMNS * len(self.parts)]

    @property
    def recent_members(self) -> np.ndarray:
        """What was told of the members after the last row; nothing before any."""
        return self.recent[-1, self.recent.shape[1] - len(self.members) :] if len(self.recent) else np.zeros(0)

    def recent_targets(self) -> np.ndarray:
        """What came in the last rows, target by target."""
        return np.stack([self.columns(self.recent, at).observed for at in range(len(self.parts))], axis=1)

    @property
    def names(self) -> list[str]:
        """The columns of the metrics file."""
        names = ["row", "rows", "time"]
        for part in self.parts:
            prefix = f"{part.target.name}." if len(self.parts) > 1 else ""
            own = ["log_loss", "baseline_log_loss"]
            if part.target.classes:
                own += ["last_log_loss", "accuracy", "baseline_accuracy", "last_accuracy"]
            else:
                kinds = ("mean_absolute_error", "mean_squared_error")
                own += [f"{kind}{name}" for kind in ("", "baseline_", "last_") for name in kinds] + ["coverage_90"]
            names += [prefix + name for name in own]
        return names + self.members


def _filled_forward(values: np.ndarray) -> np.ndarray:
    """Every value, the last known one where it is missing."""
    known = np.where(np.isnan(values), -1, np.arange(len(values)))
    place = np.maximum.accumulate(known) if len(values) else known.astype(int)
    return np.where(place >= 0, values[np.maximum(place, 0)], np.nan)
