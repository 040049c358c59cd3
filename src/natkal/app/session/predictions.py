"""The predictions file: one line per predicted row, CSV or JSON lines by its ending."""

import json
from collections.abc import Sequence

import numpy as np

from natkal.app.session.metrics import interval, point
from natkal.tabular.schema import Target


class PredictionFormat:
    """Which columns a prediction has and how a block of them is written."""

    def __init__(self, targets: Sequence[Target], sizes: Sequence[int], *, json_lines: bool):
        self._targets = list(targets)
        self._sizes = list(sizes)
        self._json = json_lines
        self.names = ["line"]
        for target in targets:
            prefix = f"{target.name}." if len(self._targets) > 1 else ""
            self.names += [f"{prefix}observed", f"{prefix}predicted"]
            if target.classes:
                self.names += [f"{prefix}p({name})" for name in target.classes]
            else:
                self.names += [f"{prefix}low_90", f"{prefix}high_90"]

    @property
    def header(self) -> str:
        """The first line of a CSV file."""
        return "" if self._json else ",".join(map(_quoted, self.names)) + "\n"

    def write(self, lines: np.ndarray, summary: np.ndarray, observed: np.ndarray) -> str:
        """A block of predictions as text."""
        columns: list[list[str]] = [[str(line) for line in lines.tolist()]]
        first = 0
        for position, (target, size) in enumerate(zip(self._targets, self._sizes, strict=True)):
            part = summary[:, first : first + size]
            first += size
            columns += [self._values(target, observed[:, position]), self._values(target, point(target, part))]
            if target.classes:
                table = np.stack([1 - part[:, 0], part[:, 0]], axis=1) if size == 1 else part
                columns += [self._numbers(column) for column in table.T]
            else:
                columns += [self._numbers(side) for side in interval(target, part)]
        if self._json:
            keys = [json.dumps(name) + ": " for name in self.names]
            return "".join(
                "{" + ", ".join(key + cell for key, cell in zip(keys, cells, strict=True)) + "}\n"
                for cells in zip(*columns, strict=True)
            )
        return "".join(",".join(cells) + "\n" for cells in zip(*columns, strict=True))

    def _numbers(self, values: np.ndarray) -> list[str]:
        """Shortest text that reads back as the same number; nothing (JSON: null) where there is none."""
        nothing = "null" if self._json else ""
        return [repr(value) if value - value == 0 else nothing for value in values.tolist()]

    def _values(self, target: Target, values: np.ndarray) -> list[str]:
        if not target.classes:
            return self._numbers(values)
        quote = json.dumps if self._json else _quoted
        names = [quote(name) for name in target.classes]
        nothing = "null" if self._json else ""
        return [names[int(value)] if value == value else nothing for value in values.tolist()]


def _quoted(text: str) -> str:
    if any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text
