"""What one cell says: a number, yes or no, a time, or nothing. Text and typed values (JSON, Arrow) alike."""

import datetime
import math
from typing import Any

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
TRUE = frozenset({"true", "yes", "t", "y"})
FALSE = frozenset({"false", "no", "f", "n"})


def is_missing(cell: Any) -> bool:
    """None, a float NaN, and the usual ways to write nothing."""
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return isinstance(cell, float) and math.isnan(cell)


def number(cell: Any) -> float:
    """A finite number, NaN where missing; a `ValueError` says what it is instead."""
    if is_missing(cell):
        return math.nan
    if isinstance(cell, bool):
        return float(cell)
    if isinstance(cell, str) and ("_" in cell or not cell.isascii()):
        raise ValueError(f"{cut(cell)} is not a number")
    if not isinstance(cell, str | int | float):
        cell = getattr(cell, "item", lambda: cell)() if hasattr(cell, "item") else cell
        if isinstance(cell, datetime.date | datetime.datetime | list | dict | bytes):
            raise ValueError(f"{cut(cell)} is not a number")
    try:
        value = float(cell)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{cut(cell)} is not a number") from error
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"{cut(cell)} is not a finite number")
    return value


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
    if isinstance(cell, dict | list):
        raise ValueError(f"{cut(cell)} is not a category")
    return str(cell).strip()


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
    text = repr(cell)
    return text if len(text) <= 60 else text[:57] + "..."
