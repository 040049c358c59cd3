"""The predictions file: one line per predicted row, CSV or JSON lines by its ending."""

import json
from collections.abc import Sequence

import numpy as np

from natkal.tables.engine.batch import TargetPrediction
from natkal.tables.learner.tasks import point_of
from natkal.tables.schema.infer import Target

OTHER = "other"
"""The column for the probability of classes that appeared after the header was written."""


class PredictionFormat:
    """Which columns a prediction has and how a block of them is written."""

    def __init__(
        self,
        targets: Sequence[Target],
        classes: Sequence[Sequence[str]] | None = None,
        *,
        json_lines: bool,
        level: float = 0.9,
    ):
        self.classes = [list(target.classes) for target in targets] if classes is None else [list(c) for c in classes]
        """The classes of each target that have a column of their own: those of the first rows."""
        self.json_lines = json_lines
        self.partitions = False
        """Whether a row is named by partition and offset instead of a line."""
        self._names: list[str] = []
        for target, known in zip(targets, self.classes, strict=True):
            prefix = f"{target.name}." if len(targets) > 1 else ""
            self._names += [f"{prefix}observed", f"{prefix}predicted"]
            if target.classes:
                self._names += [f"{prefix}p({name})" for name in (*known, OTHER)]
            else:
                self._names += [f"{prefix}{side}_{100 * level:g}" for side in ("low", "high")]

    @property
    def names(self) -> list[str]:
        """The columns."""
        return [*(("partition", "offset") if self.partitions else ("line",)), *self._names]

    @property
    def header(self) -> str:
        """The first line of a CSV file."""
        return "" if self.json_lines else ",".join(map(quoted, self.names)) + "\n"

    def write(
        self,
        lines: np.ndarray,
        targets: Sequence[Target],
        outcomes: Sequence[TargetPrediction],
        observed: np.ndarray,
        partition: int | None = None,
    ) -> str:
        """A block of predictions as text; `targets` have the classes that are known by now."""
        columns: list[list[str]] = [[str(partition)] * len(lines)] if self.partitions else []
        columns.append([str(line) for line in lines.tolist()])
        for position, (target, outcome, first) in enumerate(zip(targets, outcomes, self.classes, strict=True)):
            guess = point_of(target.task, outcome)
            columns += [self._values(target, observed[:, position]), self._values(target, guess)]
            if target.classes:
                shown = outcome.probabilities[:, : len(first)]
                other = np.maximum(1 - shown.sum(axis=1), 0.0)
                columns += [self._numbers(column) for column in (*shown.T, np.where(other < 1e-12, 0.0, other))]
            else:
                columns += [self._numbers(side) for side in (outcome.low, outcome.high)]
        if self.json_lines:
            keys = [json.dumps(name) + ": " for name in self.names]
            return "".join(
                "{" + ", ".join(key + cell for key, cell in zip(keys, cells, strict=True)) + "}\n"
                for cells in zip(*columns, strict=True)
            )
        return "".join(",".join(cells) + "\n" for cells in zip(*columns, strict=True))

    def _numbers(self, values: np.ndarray) -> list[str]:
        """Shortest text that reads back as the same number; nothing (JSON: null) where there is none."""
        nothing = "null" if self.json_lines else ""
        return [repr(value) if value - value == 0 else nothing for value in values.tolist()]

    def _values(self, target: Target, values: np.ndarray) -> list[str]:
        if not target.classes:
            return self._numbers(values)
        quote = json.dumps if self.json_lines else quoted
        names = [quote(name) for name in target.classes]
        nothing = "null" if self.json_lines else ""
        return [names[int(value)] if value == value else nothing for value in values.tolist()]


def prediction_columns(
    targets: Sequence[Target], outcomes: Sequence[TargetPrediction], level: float
) -> dict[str, np.ndarray | list[str]]:
    """The predictions of some rows as columns: the value to bet on, and its limits or the probability of each class."""
    columns: dict[str, np.ndarray | list[str]] = {}
    for target, outcome in zip(targets, outcomes, strict=True):
        prefix = f"{target.name}." if len(targets) > 1 else ""
        guess = point_of(target.task, outcome)
        if target.classes:
            columns[f"{prefix}predicted"] = [target.classes[int(number)] for number in guess]
            for number, name in enumerate(target.classes):
                columns[f"{prefix}p({name})"] = outcome.probabilities[:, number]
        else:
            share = f"{100 * level:g}"
            columns[f"{prefix}predicted"] = guess
            columns |= {f"{prefix}low_{share}": outcome.low, f"{prefix}high_{share}": outcome.high}
    return columns


def quoted(text: str) -> str:
    """A cell of a CSV file."""
    if any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text
