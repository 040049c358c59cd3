"""What one cell says: a number, yes or no, a time, or nothing. Text and typed values (JSON, Arrow) alike."""

import datetime
import math
from typing import Any

from natkal.tables.schema.written_numbers import POINT, read_number

MISSING = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?"})
TRUE = frozenset({"true", "yes", "t", "y"})
FALSE = frozenset({"false", "no", "f", "n"})


def is_missing(cell: Any) -> bool:
    """None, a float NaN, and the usual ways to write nothing."""
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return isinstance(cell, float) and math.isnan(cell)


def number(cell: Any, decimal: str = POINT) -> float:
    """A finite number, NaN where missing; a `ValueError` says what it is instead. `decimal` is how text writes it."""
    if isinstance(cell, str):
        value = _plain_float(cell) if decimal == POINT else None
        if value is not None and math.isfinite(value):
            return value
        if cell.strip().lower() in MISSING:
            return math.nan
        value = read_number(cell, decimal) if value is None else value
    elif cell is None:
        return math.nan
    else:
        value = None if isinstance(cell, bytes | list | dict | datetime.date) else _typed_float(cell)
        if value is not None and math.isnan(value):
            return math.nan
    if value is None:
        raise ValueError(f"{cut(cell)} is not a number")
    if not math.isfinite(value):
        raise ValueError(f"{cut(cell)} is not a finite number")
    return value


def _plain_float(text: str) -> float | None:
    """What `float` reads, without underscores and digits of other scripts."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _typed_float(cell: Any) -> float | None:
    """A number, boolean or decimal of JSON, Arrow or NumPy as a float; infinite where it is too large for one."""
    try:
        return float(cell)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def boolean(cell: Any) -> float:
    """1 or 0, NaN where missing."""
    if is_missing(cell):
        return math.nan
    if isinstance(cell, bool):
        return float(cell)
    text = str(cell).strip().lower()
    if text in TRUE or text in ("1", "1.0"):
        return 1.0
    if text in FALSE or text in ("0", "0.0"):
        return 0.0
    raise ValueError(f"{cut(cell)} is neither true nor false")


def label(cell: Any) -> str | None:
    """A category's name, None where missing; 1, 1.0 and "1" are one category."""
    if is_missing(cell):
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, dict | list | bytes):
        raise ValueError(f"{cut(cell)} is not a category")
    return str(cell).strip()


def class_name(cell: Any, *, whole: bool) -> str | None:
    """`label` of a target; where classes are whole numbers, 1, 1.0, "1.0" and "01" are one class."""
    if whole and isinstance(cell, str):
        value = _plain_float(cell)
        if value is not None and math.isfinite(value):
            return label(value)
    return label(cell)


def is_whole(name: str) -> bool:
    """Whether this class is a whole number in its shortest form, small enough to be exact as a float."""
    digits = name.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 16 and str(int(name)) == name


def moment(cell: Any) -> datetime.datetime | None:
    """A point in time, None where missing."""
    if is_missing(cell):
        return None
    if isinstance(cell, datetime.datetime):
        return cell
    if isinstance(cell, datetime.date):
        return datetime.datetime(cell.year, cell.month, cell.day)
    if not isinstance(cell, str):
        raise ValueError(f"{cut(cell)} is not a date or time")
    try:
        return datetime.datetime.fromisoformat(cell.strip())
    except ValueError as error:
        raise ValueError(f"{cut(cell)} is not a date or time like 2024-05-17 or 2024-05-17T08:30:00") from error


def cut(cell: Any) -> str:
    """The cell, quoted and short enough for a message."""
    text = repr(cell if not isinstance(cell, str) else cell[:100])
    return text if len(text) <= 60 else text[:57] + "..."
