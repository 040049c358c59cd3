"""Columns that continue by themselves: dates at equal steps, running numbers, hours, weekdays, constants.

A column of numbers is a sequence of runs, each one value that stands for some rows. It is known ahead if all that was
seen of it, in every key, says what comes next: after a value always the same next value (an hour, a weekday), or always
one step more (a running number, a year), each for the same number of rows. One that never changed in a key goes on as
it is. One exception in 50 runs is forgiven: a row may be missing. Of a column of dates the last steps decide.
"""

import datetime
import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from natkal.tables.schema.guess import kind_reader
from natkal.tables.schema.infer import Feature

TAIL = 8
"""How many of the last dates decide how a column of them goes on."""
LEAST_ROWS = 3
"""With fewer cells a column is not known ahead."""
MOST_STEPS = 0.7
"""A column of dates goes on by its usual step where at least this share of its last steps are that step."""
REPEATED = 0.3
"""A column of dates has several rows for one moment where at least this share of its last steps are 0."""
RUNS_PER_EXCEPTION = 50
MOST_EXCEPTIONS = 20
"""With so many more than are forgiven a column is no longer looked at."""
MOST_VALUES = 512
"""A column with more values does not come back to them."""
EQUAL = 1e-9
Value = float | datetime.datetime


class Agreed:
    """What was seen most lately of something that should always be the same, and how often it was not."""

    def __init__(self, value: float = 0.0, votes: int = 0, exceptions: int = 0):
        self.value, self.votes, self.exceptions = value, votes, exceptions

    def learn(self, value: float) -> bool:
        """One more; true if it is no exception. One that is outnumbered gives way."""
        if not self.votes:
            self.value = value
        same = abs(value - self.value) <= EQUAL * max(abs(value), abs(self.value))
        self.votes += 1 if same else -1
        self.exceptions += not same
        return same

    def state(self) -> list[float]:
        """Plain numbers."""
        return [self.value, self.votes, self.exceptions]


class Course:
    """How one column of numbers goes on, over all keys: what follows each value, for how many rows a value stands."""

    def __init__(self, kept: Mapping[str, Any] | None = None):
        kept = kept or {"runs": 0, "exceptions": 0, "step": [], "rows": [], "next": [], "stands": []}
        self.runs, self.exceptions = int(kept["runs"]), int(kept["exceptions"])
        self.step, self.rows = (_agreed(kept[name]) for name in ("step", "rows"))
        self.next = {float(value): _agreed(rest) for value, *rest in kept["next"]}
        self.stands = {float(value): _agreed(rest) for value, *rest in kept["stands"]}

    def learn(self, value: float, rows: int | None, following: float) -> None:
        """A value stood for so many rows (None: the first were not seen), and then came another one."""
        if self.is_lost:
            return
        self.runs += 1
        self.step.learn(following - value)
        for found, new in ((self.next, following), (self.stands, rows)):
            if new is None or (value not in found and len(found) > MOST_VALUES):
                continue
            self.exceptions += not found.setdefault(value, Agreed()).learn(new)
        if rows is not None:
            self.rows.learn(rows)

    @property
    def is_line(self) -> bool:
        """True if the column advances by one step."""
        return self._are_few(self.step.exceptions + self.rows.exceptions) and self.step.votes >= LEAST_ROWS - 1

    @property
    def is_cycle(self) -> bool:
        """True if the column comes back to its values in the same order."""
        return self._are_few(self.exceptions) and len(self.next) <= MOST_VALUES

    @property
    def is_lost(self) -> bool:
        """True if it is neither by far, and will hardly be so again."""
        line, cycle = self.step.exceptions + self.rows.exceptions, self.exceptions
        return not (
            self._are_few(line - MOST_EXCEPTIONS)
            or (self._are_few(cycle - MOST_EXCEPTIONS) and len(self.next) <= MOST_VALUES)
        )

    def _are_few(self, exceptions: int) -> bool:
        return exceptions <= self.runs // RUNS_PER_EXCEPTION

    def ahead(self, value: float, rows: int, horizon: int) -> list[Value] | None:
        """The next values after one that has stood for so many rows; None where they are not known."""
        found: list[Value] = []
        for _ in range(horizon):
            following, stands = self._after(value)
            if following is None or rows > stands:
                return None
            value, rows = (value, rows + 1) if rows < stands else (following, 1)
            found.append(value)
        return found

    def _after(self, value: float) -> tuple[float | None, float]:
        """What follows a value, and for how many rows it stands: a length above 1 needs to have been seen twice."""
        if self.is_cycle and value in self.next:
            following, stands = self.next[value].value, self.stands.get(value, self.rows)
        elif self.is_line:
            following, stands = value + self.step.value, self.rows
        else:
            return None, 0
        return following, stands.value if stands.votes >= (1 if stands.value == 1 else 2) else 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "runs": self.runs,
            "exceptions": self.exceptions,
            "step": self.step.state(),
            "rows": self.rows.state(),
            "next": [[value, *one.state()] for value, one in self.next.items()],
            "stands": [[value, *one.state()] for value, one in self.stands.items()],
        }


class Clock:
    """The columns of numbers and dates as far as they came, key by key."""

    def __init__(self):
        self.courses: dict[str, Course] = {}
        self._last: dict[str, dict[str, tuple[float, int, bool]]] = {}
        """By key and column: the last value, for how many rows it has stood, and whether another one came before."""
        self._dates: dict[str, dict[str, deque[datetime.datetime]]] = {}

    def observe(
        self, features: Iterable[Feature], columns: Mapping[str, Any], rows: Sequence[int], keys: Sequence[str]
    ) -> None:
        """Some rows of a table, those with these numbers; `keys` has one entry for each of them, or is empty."""
        for feature in features:
            column = columns.get(feature.name)
            if column is None or not len(rows):
                continue
            if feature.kind == "time":
                self._observe_dates(feature, column, rows, keys)
            elif feature.kind == "number":
                self._observe_numbers(feature, column, rows, keys)

    def _observe_dates(self, feature: Feature, column: Any, rows: Sequence[int], keys: Sequence[str]) -> None:
        read = kind_reader(feature.kind, feature.decimal)
        if not keys:
            rows = rows[-TAIL:]
        for place, row in enumerate(rows):
            value: Any = read(column[row])
            if value is not None:
                own = self._dates.setdefault(keys[place] if keys else "", {})
                own.setdefault(feature.name, deque(maxlen=TAIL)).append(value)

    def _observe_numbers(self, feature: Feature, column: Any, rows: Sequence[int], keys: Sequence[str]) -> None:
        course = self.courses.setdefault(feature.name, Course())
        if course.is_lost:
            return
        if isinstance(column, np.ndarray):
            values: list[Any] = column[np.asarray(rows)].tolist()
        else:
            read = kind_reader(feature.kind, feature.decimal)
            values = [read(column[row]) for row in rows]
        for place, value in enumerate(values):
            if value is None or not math.isfinite(value):
                continue
            own = self._last.setdefault(keys[place] if keys else "", {})
            last, stood, moved = own.get(feature.name, (value, 0, False))
            if value == last:
                own[feature.name] = last, stood + 1, moved
            else:
                course.learn(last, stood if moved else None, value)
                own[feature.name] = value, 1, True

    def ahead(self, key: str, horizon: int) -> dict[str, list[Value]]:
        """The next values of every column of this key that goes on by itself."""
        found: dict[str, Sequence[Value] | None] = {
            name: dates_ahead(list(dates), horizon) for name, dates in self._dates.get(key, {}).items()
        }
        for name, (value, stood, moved) in self._last.get(key, {}).items():
            course = self.courses[name]
            if moved:
                found[name] = None if course.is_lost else course.ahead(value, stood, horizon)
            else:
                found[name] = [value] * horizon if stood >= LEAST_ROWS else None
        return {name: list(values) for name, values in found.items() if values is not None}

    def repeated(self, key: str) -> list[str]:
        """The columns of dates of this key in which several rows have the same moment."""
        found = []
        for name, dates in self._dates.get(key, {}).items():
            same = [before == after for before, after in itertools.pairwise(dates)]
            if same and sum(same) >= REPEATED * len(same):
                found.append(name)
        return found

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: plain numbers and ISO dates."""
        return {
            "courses": {name: course.state() for name, course in self.courses.items()},
            "last": {key: {name: list(one) for name, one in own.items()} for key, own in self._last.items()},
            "dates": {
                key: {name: [date.isoformat() for date in dates] for name, dates in own.items()}
                for key, own in self._dates.items()
            },
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "Clock":
        """The inverse of `state`; whatever else it is given raises a ValueError, TypeError or KeyError."""
        made = cls()
        made.courses = {str(name): Course(kept) for name, kept in state["courses"].items()}
        for key, own in state["last"].items():
            made._last[str(key)] = {
                str(name): (float(value), int(stood), bool(moved)) for name, (value, stood, moved) in own.items()
            }
            if not made._last[str(key)].keys() <= made.courses.keys():
                raise ValueError("its clock has columns without a course")
        for key, own in state["dates"].items():
            made._dates[str(key)] = {
                str(name): deque(map(datetime.datetime.fromisoformat, dates), maxlen=TAIL)
                for name, dates in own.items()
            }
        return made


def dates_ahead(values: Sequence[datetime.datetime], horizon: int) -> list[Value] | None:
    """The next dates of a column that advances by equal steps, of time or of months; None where it does not."""
    if len(values) < LEAST_ROWS:
        return None
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


def _agreed(kept: Sequence[float]) -> Agreed:
    return Agreed(float(kept[0]), int(kept[1]), int(kept[2])) if kept else Agreed()


def _later(moment: datetime.datetime, months: int) -> datetime.datetime:
    """So many months later, on the same day of the month or the last one it has."""
    total = moment.year * 12 + moment.month - 1 + months
    (year, month), (next_year, next_month) = divmod(total, 12), divmod(total + 1, 12)
    days = (datetime.date(next_year, next_month + 1, 1) - datetime.timedelta(days=1)).day
    return moment.replace(year=year, month=month + 1, day=min(moment.day, days))
