"""Rows as they come out of a source: columns of cells, the line each row began on, and what could not be read."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

Cell = str | float | int | bool | None
Column = np.ndarray | list[Any]


class Reject(NamedTuple):
    """A row that was read and not used: where it began, and why."""

    file: str
    line: int
    reason: str
    text: str


class Position(NamedTuple):
    """Where reading goes on: the file, how far into it (bytes of text, or rows of a columnar file), and the line."""

    file: int
    offset: int
    line: int


@dataclasses.dataclass
class Rows:
    """Some consecutive rows of one file.

    A column is a float64 array of finite numbers or a list of cells: text, number, boolean, or None where missing.
    `blank` counts lines that hold no row; `position` is where the next rows begin.
    """

    file: str
    columns: dict[str, Column]
    lines: np.ndarray
    rejects: list[Reject]
    blank: int
    position: Position

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def read(self) -> int:
        """How many rows were read, usable or not."""
        return len(self.lines) + len(self.rejects) + self.blank
