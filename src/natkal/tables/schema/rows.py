"""Rows as they come out of a source: columns of cells, the line each row began on, and what could not be read."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

Cell = str | float | int | bool | None
Column = np.ndarray | list[Any]


def unnamed(position: int) -> str:
    """What a column without a name is called, by its place."""
    return f"column {position}"


def column_names(names: Iterable[str]) -> tuple[list[str], str | None]:
    """The names of a table's columns, with one for each that has none; and the first that stands twice, if any does."""
    full = [name or unnamed(position) for position, name in enumerate(names, 1)]
    seen: set[str] = set()
    for name in full:
        if name in seen:
            return full, name
        seen.add(name)
    return full, None


SHOWN = 200
"""How many characters of a rejected row are kept."""


def printable(text: str) -> str:
    """The text with what UTF-8 cannot hold (lone surrogates, as in odd file names) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown(text: str | bytes) -> str:
    """The beginning of a row, as text that any file can hold."""
    if isinstance(text, bytes):
        return text[: 4 * SHOWN].decode("utf-8", "replace")[:SHOWN]
    return printable(text[:SHOWN])


class Reject(NamedTuple):
    """A row that was read and not used: where it began, and why."""

    file: str
    line: int
    reason: str
    text: str


class Position(NamedTuple):
    """Where reading goes on: the file, how far into it (bytes of UTF-8 text, or rows of a columnar file), the line.

    The line is the row's number in a columnar file and in a JSON array.
    """

    file: int
    offset: int
    line: int


@dataclasses.dataclass
class Rows:
    """Some consecutive rows of one file.

    A column is a float64 array of finite numbers or a list of cells: text, number, boolean, or None where missing.
    `blank` counts lines that hold no row; `position` is where the next rows begin.
    Of a partition of a log, `partition` is its number, `lines` are offsets, and `messages` has the messages by offset.
    `labels`: the rows are labels of earlier or later ones by their id. `live`: nothing more had come behind them.
    """

    file: str
    columns: dict[str, Column]
    lines: np.ndarray
    rejects: list[Reject]
    blank: int
    position: Position
    partition: int | None = None
    messages: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    labels: bool = False
    live: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def read(self) -> int:
        """How many rows were read, usable or not."""
        return len(self.lines) + len(self.rejects) + self.blank

    def part(self, first: int, last: int) -> "Rows":
        """The rows from `first` up to `last`; rejects and blank lines stay with the part that begins the block.

        A run can go on from `position` only when all parts have been taken.
        """
        return dataclasses.replace(
            self,
            columns={name: column[first:last] for name, column in self.columns.items()},
            lines=self.lines[first:last],
            rejects=self.rejects if first == 0 else [],
            blank=self.blank if first == 0 else 0,
        )
