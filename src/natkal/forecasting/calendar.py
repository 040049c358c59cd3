"""Columns that continue by themselves: dates at equal steps, months, running numbers, constants.

The last cells of each such column are kept, key by key. Where they advance by one step, the rows to come are known in
that column without being told.
"""

import datetime
import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from natkal.tables.schema.guess import kind_reader
from natkal.tables.schema.infer import Feature

TAIL = 8
"""How many of the last cells decide how a column goes on."""
MOST_STEPS = 0.7
"""A column of dates goes on by its usual step where at least this share of its last steps are that step."""
REPEATED = 0.3
"""A column of dates has several rows for one moment where at least this share of its last steps are 0."""
Value = float | datetime.datetime


class Clock:
    """The last values of the columns of numbers and dates, key by key."""

    def __init__(self, kept: Mapping[str, Mapping[str, Sequence[Any]]] | None = None):
        self._tails: dict[str, dict[str, deque[Value]]] = {}
        for key, columns in (kept or {}).items():
            own = self._tails.setdefault(key, {})
            for name, cells in columns.items():
                values = (datetime.datetime.fromisoformat(c) if isinstance(c, str) else float(c) for c in cells)
                own[name] = deque(values, maxlen=TAIL)

    def observe(self, features: Iterable[Feature], columns: Mapping[str, Any], rows: Sequence[int], keys: Any) -> None:
        """Some rows of a table, those with these numbers; `keys` has one entry for each of them, or is empty."""
        if not keys:
            rows = rows[-TAIL:]
        for feature in features:
            column = columns.get(feature.name)
            if feature.kind not in ("number", "time") or column is None:
                continue
            read = kind_reader(feature.kind, feature.decimal)
            for place, row in enumerate(rows):
                value = read(column[row])
                if value is None or value != value:
                    continue
                own = self._tails.setdefault(keys[place] if keys else "", {})
                own.setdefault(feature.name, deque(maxlen=TAIL)).append(value)

    def ahead(self, key: str, horizon: int) -> dict[str, list[Value]]:
        """The next values of every column of this key that goes on by itself."""
        found = {}
        for name, tail in self._tails.get(key, {}).items():
            following = continued(list(tail), horizon)
            if following is not None:
                found[name] = following
        return found

    def repeated(self, key: str) -> list[str]:
        """The columns of dates of this key in which several rows have the same moment."""
        found = []
        for name, tail in self._tails.get(key, {}).items():
            same = [before == after for before, after in itertools.pairwise(tail)]
            if isinstance(tail[-1], datetime.datetime) and same and sum(same) >= REPEATED * len(same):
                found.append(name)
        return found

    def state(self) -> dict[str, dict[str, list[Any]]]:
        """What a checkpoint keeps: plain lists of numbers and ISO dates."""
        return {
            key: {
                name: [value.isoformat() if isinstance(value, datetime.datetime) else value for value in tail]
                for name, tail in columns.items()
            }
            for key, columns in self._tails.items()
        }


def continued(values: Sequence[Any], horizon: int) -> list[Value] | None:
    """The next values of a column that advances by equal steps; None where it does not."""
    if len(values) < 3:
        return None
    if isinstance(values[-1], datetime.datetime):
        return _dates(values, horizon)
    steps = np.diff(np.array(values, float))
    size = max(float(np.abs(values).max()), 1e-300)
    if float(np.ptp(steps)) > 1e-9 * size:
        return None
    return [float(values[-1] + steps.mean() * step) for step in range(1, horizon + 1)]


def _dates(values: Sequence[datetime.datetime], horizon: int) -> list[Value] | None:
    last = values[-1]
    months = [12 * (b.year - a.year) + b.month - a.month for a, b in itertools.pairwise(values)]
    same_day = len({(value.day, value.time()) for value in values}) == 1
    if same_day and months[0] > 0 and len(set(months)) == 1:
        return [_later(last, months[0] * step) for step in range(1, horizon + 1)]
    steps = [b - a for a, b in itertools.pairwise(values)]
    usual = max(set(steps), key=steps.count)
    if usual <= datetime.timedelta(0) or steps.count(usual) < MOST_STEPS * len(steps):
        return None
    return [last + usual * step for step in range(1, horizon + 1)]


def _later(moment: datetime.datetime, months: int) -> datetime.datetime:
    """So many months later, on the same day of the month or the last one it has."""
    total = moment.year * 12 + moment.month - 1 + months
    (year, month), (next_year, next_month) = divmod(total, 12), divmod(total + 1, 12)
    days = (datetime.date(next_year, next_month + 1, 1) - datetime.timedelta(days=1)).day
    return moment.replace(year=year, month=month + 1, day=min(moment.day, days))
