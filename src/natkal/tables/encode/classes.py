"""Classes of the targets, numbered as they appear."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from natkal.tables.schema import cells
from natkal.tables.schema.columns import read_column
from natkal.tables.schema.infer import Target
from natkal.tables.schema.rows import Column


class ClassNumbers:
    """The number of each class of one target. A class never seen gets the next number, up to the target's limit."""

    def __init__(self, target: Target):
        self._target = target
        self.names = list(target.classes)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._in_order = all(name == str(number) for number, name in enumerate(self.names))
        """Whether each class is called by its own number."""

    def read(self, column: Column, reasons: dict[int, str]) -> np.ndarray | list[str | None]:
        """The numbers of the classes where all are known, otherwise their names, for `number` to go through."""
        if self._in_order and isinstance(column, np.ndarray) and self._are_numbers(column):
            return column
        if self._in_order and isinstance(column, list) and set(map(type, column)) == {int}:
            known = min(column) >= 0 and max(column) < len(self.names)
            if known:
                return np.array(column, np.float64)

        def name_of(cell: object) -> str | None:
            return cells.class_name(cell, whole=self._target.whole)

        words = read_column(self._target.name, column, name_of, reasons)
        try:
            return np.array([math.nan if word is None else self._numbers[word] for word in words], np.float64)
        except KeyError:
            return words

    def _are_numbers(self, column: np.ndarray) -> bool:
        """Whether these finite numbers, the names of their classes in order, are known."""
        return bool(np.all((column >= 0) & (column < len(self.names)) & (column == np.floor(column))))

    def complaint(self, word: str | None, new: Mapping[str, int]) -> str:
        """Why this class cannot be taken beside those that are `new`; empty if it can."""
        if word is None or word in self._numbers or word in new:
            return ""
        if self._target.whole and _has_decimals(word):
            return (
                f"{cells.cut(word)} has decimals, and the classes so far are whole numbers; "
                "--task regression learns them as numbers"
            )
        if len(self.names) + len(new) < self._target.limit:
            return ""
        known = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
        return f"{cells.cut(word)} is not one of the {len(self.names):,} classes ({known})"

    def number(self, word: str | None, new: dict[str, int]) -> float:
        """The number of a class that can be taken; one not known gets the next, and is `new`."""
        if word is None:
            return math.nan
        if word in self._numbers:
            return float(self._numbers[word])
        return float(new.setdefault(word, len(self.names) + len(new)))

    def add(self, new: Mapping[str, int]) -> None:
        """Know these classes too."""
        self._numbers.update(new)
        self.names.extend(new)
        self._in_order = self._in_order and all(word == str(number) for word, number in new.items())


def _has_decimals(word: str) -> bool:
    """Whether this is a number that is not whole."""
    try:
        return not cells.number(word).is_integer()
    except (ValueError, OverflowError):
        return False


def number_classes(
    parts: Sequence[tuple[ClassNumbers, str, np.ndarray | list[str | None]]],
    reasons: dict[int, str],
    rows: int,
    added: dict[str, dict[str, int]],
) -> list[np.ndarray]:
    """Numbers for every target's names, row by row: a row that is rejected for any reason adds no class."""
    tables = [values if isinstance(values, np.ndarray) else np.full(rows, np.nan) for *_, values in parts]
    open_parts = [(place, *part) for place, part in enumerate(parts) if not isinstance(part[2], np.ndarray)]
    if not open_parts:
        return tables
    for row in range(rows):
        if row in reasons:
            continue
        for _, numbers, name, words in open_parts:
            complaint = numbers.complaint(words[row], added.get(name, {}))
            if complaint:
                reasons.setdefault(row, f"column {name!r}: {complaint}")
        if row not in reasons:
            for place, numbers, name, words in open_parts:
                tables[place][row] = numbers.number(words[row], added.setdefault(name, {}))
    return tables
