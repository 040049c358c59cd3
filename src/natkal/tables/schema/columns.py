"""Cells of one column into values: read one by one or at once, with a reason for each cell that cannot be."""

import datetime
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from natkal.tables.schema import cells
from natkal.tables.schema.infer import Feature, Target
from natkal.tables.schema.rows import Column, Rows, shown

CALENDAR = ("day sin", "day cos", "week sin", "week cos", "year sin", "year cos")


def read_column(name: str, column: Column, read: Callable[[Any], Any], reasons: dict[int, str]) -> list[Any]:
    """Every cell read; where one cannot be, its row gets a reason (the first stays) and the value None."""
    try:
        return [read(cell) for cell in column]
    except ValueError:
        pass
    values = []
    for row, cell in enumerate(column):
        try:
            values.append(read(cell))
        except ValueError as error:
            reasons.setdefault(row, f"column {name!r}: {error}")
            values.append(None)
    return values


def target_reader(target: Target) -> Callable[[Any], float]:
    """A number that this task can have."""

    def read(cell: Any) -> float:
        value = cells.number(cell, target.decimal)
        if target.task == "count" and not math.isnan(value) and (value < 0 or value != math.floor(value)):
            raise ValueError(f"{cells.cut(cell)} is not a count (0, 1, 2, ...)")
        if target.task == "positive" and value <= 0:
            raise ValueError(f"{cells.cut(cell)} is not positive")
        return value

    return read


def calendar(moment: datetime.datetime) -> list[float]:
    """Where in the day, the week and the year, each as a point on a circle."""
    day = (moment.hour * 3600 + moment.minute * 60 + moment.second) / 86400
    week = (moment.weekday() + day) / 7
    year = (moment.timetuple().tm_yday - 1 + day) / 365.25
    return [wave(2 * math.pi * phase) for phase in (day, week, year) for wave in (math.sin, math.cos)]


def bucket(feature: Feature, word: str) -> tuple[int, float]:
    """A signed hash: the same on every machine and in every run."""
    digest = hashlib.blake2b(word.encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest[:7], "little") % feature.slots, 1.0 if digest[7] & 1 else -1.0


def pick(values: np.ndarray | list[Any], good: np.ndarray) -> Any:
    """The values of the rows that can be used."""
    if good.all():
        return values
    if isinstance(values, np.ndarray):
        return values[good]
    return [value for value, keep in zip(values, good, strict=True) if keep]


def is_missing(values: np.ndarray | Sequence[Any]) -> np.ndarray:
    """Which of these read values are missing."""
    if isinstance(values, np.ndarray):
        return np.isnan(values)
    return np.array([value is None for value in values], bool)


def row_text(rows: Rows, row: int) -> str:
    """The beginning of a row, for its reject."""
    return shown(",".join("" if column[row] is None else str(column[row]) for column in rows.columns.values()))
