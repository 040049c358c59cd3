"""What a column is, guessed from its first cells as people mean it: the kind of a feature, the task of a target."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.tables.schema import cells
from natkal.tables.schema.written_numbers import POINT, plain_numbers, survey

KINDS = ("number", "boolean", "category", "hashed", "time")
TASKS = ("regression", "binary", "multiclass", "count", "positive")

MOST = 0.9
"""A column is what at least this share of its first cells look like."""
FEW_CLASSES, MEAN_REPEATS, SINGLE_SHARE = 12, 5, 0.25
"""Whole numbers are classes if at most 12 differ, each appears 5 times on average, and a quarter or one only once."""
USUAL_PAIRS = ((0.0, 1.0), (1.0, 2.0), (-1.0, 1.0))
"""Two whole numbers that are classes however few rows there are."""
COUNT_START, COUNT_MEAN = 3, 30
"""Counts begin at 3 or below and have a mean below 30."""
LEAST_DISPERSION, MOST_CLUMPING = 0.7, 10
"""Variance of counts: at least 0.7 of their mean (Poisson: 1), at most mean + 10 mean^2 (negative binomial)."""
TAIL, TAIL_ROWS = 2.0, 50
"""The largest of 50 counts or more lies 2 standard deviations above their mean, that of evenly spread codes below."""
HUMP_VALUES = 6
"""Fewer different values than this have no shape that tells counts from classes."""
SCORE_VALUES = 5
"""Scores have at least so many different values."""
MANY_NAMES = 20
"""Names of which more than this many differ, nearly all of them, are no classes."""


def readable(column: Sequence[Any], read: Callable[[Any], Any]) -> list[Any]:
    """The cells that can be read so."""
    good = []
    for cell in column:
        try:
            read(cell)
        except ValueError:
            continue
        good.append(cell)
    return good


def mostly(column: Sequence[Any], read: Callable[[Any], Any]) -> bool:
    """Whether nearly all cells can be read so; the others are wrong, and their rows will be rejected."""
    return len(readable(column, read)) >= MOST * len(column)


def number_reader(decimal: str) -> Callable[[Any], float]:
    """`cells.number` for this decimal sign."""
    return lambda cell: cells.number(cell, decimal)


def kind_reader(kind: str, decimal: str = POINT) -> Callable[[Any], Any]:
    """How a cell of this kind of feature is read."""
    if kind == "number":
        return cells.number if decimal == POINT else number_reader(decimal)
    return {"boolean": cells.boolean, "time": cells.moment, "category": cells.label, "hashed": cells.label}[kind]


def mostly_numbers(present: Sequence[Any], decimal: str) -> bool:
    """Whether nearly all cells are numbers with this decimal sign."""
    plain = decimal == POINT and plain_numbers(present) is not None
    return plain or mostly(present, number_reader(decimal))


def guess_kind(present: Sequence[Any], decimal: str) -> str:
    """Which kind of feature these cells, none missing, look like."""
    if decimal == POINT and plain_numbers(present) is not None:
        return "number"
    if all(isinstance(cell, bool) for cell in present) or (mostly(present, cells.boolean) and _words(present)):
        return "boolean"
    if mostly(present, number_reader(decimal)):
        return "number"
    return "time" if mostly(present, cells.moment) else "category"


def _words(present: Sequence[Any]) -> bool:
    """Whether true and false are mostly written as words: a column of 0 and 1 is one of numbers."""
    digits = sum(str(cell).strip() in ("0", "1", "0.0", "1.0") for cell in present)
    return digits < len(present) / 2


def guess_task(name: str, present: Sequence[Any], decimal: str = POINT) -> tuple[str, str]:
    """Which task the values of target `name` look like, and why; none of them is missing."""
    if all(isinstance(cell, bool) for cell in present):
        return "binary", "true or false"
    if not mostly_numbers(present, decimal):
        return _task_of_names(name, present, decimal)
    values = plain_numbers(present) if decimal == POINT else None
    if values is None:
        values = np.array([cells.number(cell, decimal) for cell in readable(present, number_reader(decimal))])
    if np.all(values == np.floor(values)) and np.abs(values).max() < 2**53:
        guess = _task_of_whole_numbers(name, values)
        if guess is not None:
            return guess
    if values.min() > 0 and values.max() > 20 * np.median(values):
        return "positive", "positive, and the largest far above the middle"
    return "regression", "numbers"


def _task_of_names(name: str, present: Sequence[Any], decimal: str) -> tuple[str, str]:
    if not mostly(present, cells.label):
        nested = next(cell for cell in present if isinstance(cell, dict | list | bytes))
        raise StreamError(f"target {name!r} holds nested values such as {cells.cut(nested)}: name another --target")
    if survey(present).mixed(MOST):
        raise StreamError(f"target {name!r} holds numbers with decimal points and numbers with decimal commas")
    count = len({cells.label(cell) for cell in readable(present, cells.label)})
    if count > MANY_NAMES and count > MOST * len(present):
        numbers = len(readable(present, number_reader(decimal)))
        some = f", {numbers:,} of them numbers" if numbers else ""
        raise StreamError(
            f"target {name!r}: nearly every value differs ({count:,} of the first {len(present):,}{some}), "
            "so these are no classes; name another --target, or --task multiclass if they are"
        )
    return ("binary" if count == 2 else "multiclass"), f"{count} names"


def _task_of_whole_numbers(name: str, values: np.ndarray) -> tuple[str, str] | None:
    """Classes or counts; None where these whole numbers look like neither."""
    distinct, repeats = np.unique(values, return_counts=True)
    if len(distinct) == 1:
        if distinct[0] not in (0, 1):
            return None
        return "binary", f"{distinct[0]:g} in all of the first {len(values):,} rows: a class, unless --task says more"
    single = repeats == 1
    repeated = len(values) >= MEAN_REPEATS * len(distinct) and single.sum() <= max(1, SINGLE_SHARE * len(distinct))
    if _looks_like_scores(distinct, repeats):
        return "regression", f"whole numbers from {distinct[0]:g} to {distinct[-1]:g}, most in the middle, like scores"
    counted = _looks_counted(values)
    fading = counted and _fades_out(repeats)
    if tuple(distinct) in USUAL_PAIRS or (len(distinct) <= FEW_CLASSES and repeated and not fading):
        return ("binary" if len(distinct) == 2 else "multiclass"), f"{len(distinct)} different whole numbers"
    return ("count", "small whole numbers from 0 on, spread like counts") if counted else None


def _looks_like_scores(distinct: np.ndarray, repeats: np.ndarray) -> bool:
    """Whether neighbouring whole numbers begin above 1, as codes do not, and are rarer towards both ends."""
    neighbours = len(distinct) >= SCORE_VALUES and distinct[0] > 1 and (np.diff(distinct) == 1).all()
    return bool(neighbours and 0 < repeats.argmax() < len(repeats) - 1 and _one_hump(repeats))


def _fades_out(repeats: np.ndarray) -> bool:
    """Whether the largest values are rare as in the tail of counts: once each, or of one hump and below 1 percent."""
    singles = int((repeats == 1).sum())
    if singles and (repeats[-singles:] == 1).all():
        return True
    return bool(len(repeats) >= HUMP_VALUES and _one_hump(repeats) and repeats[-1] < 0.01 * repeats.sum())


def _one_hump(repeats: np.ndarray) -> bool:
    """Whether values get more frequent up to the most frequent one and rarer from there, but for chance."""
    mode = int(repeats.argmax())
    noise = 2 * np.sqrt(repeats[:-1] + repeats[1:])  # two standard deviations of the difference of two counts
    steps = np.diff(repeats)
    return bool((steps[:mode] > -noise[:mode]).all() and (steps[mode:] < noise[mode:]).all())


def _looks_counted(values: np.ndarray) -> bool:
    """Whether whole numbers are small and have the mean, spread and tail of Poisson or negative binomial counts."""
    mean, variance = values.mean(), values.var()
    fits = LEAST_DISPERSION * mean <= variance <= mean + MOST_CLUMPING * mean**2
    tail = len(values) < TAIL_ROWS or values.max() >= mean + TAIL * np.sqrt(variance)
    return bool(0 <= values.min() <= COUNT_START and mean < COUNT_MEAN and fits and tail)
