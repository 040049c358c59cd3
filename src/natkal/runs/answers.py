"""An answer has the same names in CSV, JSON, HTTP and frames; the predictions file, a line for each predicted row."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
        self.text_names: set[str] = set()
        """The columns that hold names of classes."""
        for target, known in zip(targets, self.classes, strict=True):
            several = len(targets) > 1
            self._names += [f"{target.name}.observed" if several else "observed"]
            self._names += names_of(target, [*known, OTHER], several, level)
            if target.classes:
                self.text_names |= {f"{target.name}.{name}" if several else name for name in ("observed", "predicted")}

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


def names_of(target: Target, classes: Sequence[str], several: bool, level: float) -> list[str]:
    """What an answer is called everywhere: the value to bet on, then its limits or the probability of each class."""
    prefix = f"{target.name}." if several else ""
    sides = [f"{side}_{100 * level:g}" for side in ("low", "high")]
    own = [f"p({name})" for name in classes] if target.classes else sides
    return [prefix + name for name in ("predicted", *own)]


def prediction_columns(
    targets: Sequence[Target], outcomes: Sequence[TargetPrediction], level: float
) -> dict[str, np.ndarray | list[str]]:
    """The predictions of some rows as columns."""
    columns: dict[str, np.ndarray | list[str]] = {}
    for target, outcome in zip(targets, outcomes, strict=True):
        guess = point_of(target.task, outcome)
        names = names_of(target, target.classes, len(targets) > 1, level)
        if target.classes:
            shown = outcome.probabilities[:, : len(target.classes)]
            unknown = np.zeros(len(shown))  # a class that came after these rows
            parts = [*shown.T, *[unknown] * (len(target.classes) - shown.shape[1])]
            own = [[target.classes[int(number)] for number in guess], *parts]
        else:
            own = [guess, outcome.low, outcome.high]
        columns |= dict(zip(names, own, strict=True))
    return columns


def as_rows(columns: Mapping[str, np.ndarray | list[Any]]) -> list[dict[str, Any]]:
    """Columns as one object for each row."""
    lists = [values if isinstance(values, list) else values.tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def quoted(text: str) -> str:
    """A cell of a CSV file."""
    if any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text
