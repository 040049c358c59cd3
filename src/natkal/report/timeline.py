"""The axis along a run: row numbers, or the times of the rows where the data has them in order."""

import datetime
import math
from typing import NamedTuple

import numpy as np

from natkal.tables.schema.times import EPOCH, moment_at

SECOND_STEPS = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600)
MONTH_STEPS = (1, 3, 6)
DAY, MONTH, YEAR = 86400.0, 2_629_800.0, 31_557_600.0


class Along(NamedTuple):
    """Where each row lies, where the axis ends, whether places are times (seconds since 1970), the words below it."""

    places: np.ndarray
    ends: tuple[float, float]
    dates: bool
    label: str


def along(rows: np.ndarray, times: np.ndarray | None, *, whole_run: bool = True) -> Along:
    """The times of these rows where all are known and none is before another, else their numbers.

    The row numbers of a whole run begin at 0, those of its last rows at the first of them.
    """
    if times is not None and _in_order(times):
        ends = float(times[0]), float(times[-1])
        years = sorted({moment_at(end).year for end in ends})
        return Along(times, ends, True, f"time, {' to '.join(map(str, years))}")
    last_row = float(rows[-1]) if len(rows) else 1.0
    first_row = 0.0 if whole_run or not len(rows) else float(rows[0])
    return Along(np.asarray(rows, float), (first_row, last_row), False, "rows" if whole_run else "row")


def _in_order(times: np.ndarray) -> bool:
    known = len(times) > 1 and bool(np.isfinite(times).all())
    return known and bool(times[-1] > times[0] and (np.diff(times) >= 0).all())


def date_ticks(low: float, high: float, about: int = 4) -> list[tuple[float, str]]:
    """Round moments between low and high, about so many, each with its text."""
    rough = 0.75 * (high - low) / about
    if rough <= SECOND_STEPS[-1]:
        step = next(step for step in SECOND_STEPS if step >= rough)
        places = [float(step * count) for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return [(place, _text(moment_at(place), step)) for place in places]
    if rough <= MONTH_STEPS[-1] * MONTH:
        months = next(months for months in MONTH_STEPS if months * MONTH >= rough)
    else:
        years = rough / YEAR
        power = 10 ** math.floor(math.log10(max(years, 1.0)))
        months = 12 * next(size * power for size in (1, 2, 5, 10) if size * power >= years * 0.999)
    first, last = moment_at(low), moment_at(high)
    counts = range(-(-(12 * first.year + first.month - 1) // months), (12 * last.year + last.month - 1) // months + 1)
    moments = [datetime.datetime(count * months // 12, count * months % 12 + 1, 1) for count in counts if count > 0]
    form = "%Y" if months >= 12 else "%b %Y"
    found = [((moment - EPOCH).total_seconds(), moment.strftime(form)) for moment in moments]
    return [(place, text) for place, text in found if low <= place <= high]


def date_text(place: float) -> str:
    """A moment in full: the date, and the time of day where it has one."""
    moment = moment_at(round(place))
    return moment.strftime("%Y-%m-%d" if moment.time() == datetime.time() else "%Y-%m-%d %H:%M")


def _text(moment: datetime.datetime, step: int) -> str:
    if step >= DAY or (moment.time() == datetime.time() and step >= 60):
        return f"{moment.day} {moment:%b}"
    return moment.strftime("%H:%M" if step >= 60 else "%H:%M:%S")
