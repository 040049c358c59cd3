"""Cells into numbers: one row of features and targets for each row that can be used, a reason for each that cannot."""

import datetime
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from natkal.tabular import cells
from natkal.tabular.schema import Feature, Schema, Target
from natkal.tabular.table import Column, Reject, Rows


class Encoded(NamedTuple):
    """What a learner takes of some rows: numbers (NaN where missing), keys, sequences and lines; and the rejects."""

    inputs: np.ndarray
    targets: np.ndarray
    keys: list[str]
    sequences: list[str]
    lines: np.ndarray
    file: str
    rejects: list[Reject]


class Encoder:
    """Turns rows into numbers, by the schema. What it learns on the way, the vocabularies, only ever grows.

    The first `scaled` features are plain numbers, to be standardised; the others are already of order one.
    """

    def __init__(self, schema: Schema, vocabularies: dict[str, list[str]] | None = None):
        self.schema = schema
        self.vocabularies = {
            feature.name: list((vocabularies or {}).get(feature.name, []))
            for feature in schema.features
            if feature.kind == "category"
        }
        self._index = {
            name: {word: slot for slot, word in enumerate(words)} for name, words in self.vocabularies.items()
        }
        numbers = [feature for feature in schema.features if feature.kind == "number"]
        self._ordered = [*numbers, *(feature for feature in schema.features if feature.kind != "number")]
        self.scaled = len(numbers)

    @property
    def names(self) -> list[str]:
        """A name for each number of a row, as it stands now (categories take their names as they appear)."""
        names = [feature.name for feature in self._ordered[: self.scaled]]
        for feature in self._ordered[self.scaled :]:
            names.extend(self._names(feature))
        names.extend(f"{feature.name} is missing" for feature in self._ordered if feature.flag_missing)
        return names

    @property
    def owners(self) -> list[str]:
        """The column that each number of a row comes from."""
        owners = [feature.name for feature in self._ordered for _ in range(feature.slots)]
        return [*owners, *(feature.name for feature in self._ordered if feature.flag_missing)]

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return sum(feature.slots + feature.flag_missing for feature in self._ordered)

    def encode(self, rows: Rows) -> Encoded:
        """The rows that can be used, in order, and the rejects among them and before them."""
        reasons: dict[int, str] = {}
        parsed = [self._parse(feature, rows, reasons) for feature in self._ordered]
        targets = [self._parse_target(target, rows, reasons) for target in self.schema.targets]
        keys = self._keys(rows, reasons)
        sequences = self._labels(self.schema.sequence, rows, reasons)
        if self.schema.missing == "reject":
            for feature, values in zip(self._ordered, parsed, strict=True):
                for row in np.flatnonzero(_is_missing(values)):
                    reasons.setdefault(int(row), f"column {feature.name!r}: the value is missing")
        good = np.ones(len(rows), bool)
        good[list(reasons)] = False
        columns = []
        for feature, values in zip(self._ordered, parsed, strict=True):
            columns.append(self._columns(feature, _pick(values, good)))
        flags = [
            _is_missing(_pick(values, good)).astype(np.float64)[:, None]
            for feature, values in zip(self._ordered, parsed, strict=True)
            if feature.flag_missing
        ]
        inputs = np.concatenate([*columns, *flags], axis=1) if columns else np.zeros((int(good.sum()), 0))
        rejects = [
            *rows.rejects,
            *(Reject(rows.file, int(rows.lines[row]), reasons[row], _text(rows, row)) for row in sorted(reasons)),
        ]
        return Encoded(
            inputs=inputs,
            targets=np.stack([_pick(values, good) for values in targets], axis=1),
            keys=_pick(keys, good) if keys else [],
            sequences=_pick(sequences, good) if sequences else [],
            lines=rows.lines[good],
            file=rows.file,
            rejects=sorted(rejects, key=lambda reject: reject.line),
        )

    def _parse(self, feature: Feature, rows: Rows, reasons: dict[int, str]) -> np.ndarray | list[Any]:
        column = rows.columns.get(feature.name)
        if column is None:
            column = [None] * len(rows)
        if feature.kind == "number":
            plain = column if isinstance(column, np.ndarray) else plain_numbers(column)
            if plain is not None:
                return plain
        read: Callable[[Any], Any] = {
            "number": cells.number,
            "boolean": cells.boolean,
            "time": cells.moment,
            "category": cells.label,
            "hashed": cells.label,
        }[feature.kind]
        values = read_column(feature.name, column, read, reasons)
        return np.array(values, np.float64) if feature.kind in ("number", "boolean") else values

    def _parse_target(self, target: Target, rows: Rows, reasons: dict[int, str]) -> np.ndarray:
        column = rows.columns.get(target.name)
        if column is None:
            return np.full(len(rows), np.nan)
        read = class_reader(target) if target.classes else number_reader(target)
        if isinstance(column, np.ndarray) and _fits(target, column):
            return column
        return np.array(read_column(target.name, column, read, reasons), np.float64)

    def _keys(self, rows: Rows, reasons: dict[int, str]) -> list[str]:
        keys = self._labels(self.schema.key, rows, reasons)
        for row, value in enumerate(keys):
            if not value:
                reasons.setdefault(row, f"column {self.schema.key!r}: the key is missing")
        return keys

    def _labels(self, name: str | None, rows: Rows, reasons: dict[int, str]) -> list[str]:
        """The column's values as names, empty where missing; an empty list where there is no such column to read."""
        if name is None:
            return []
        values = read_column(name, rows.columns.get(name, [None] * len(rows)), cells.label, reasons)
        return ["" if value is None else value for value in values]

    def _columns(self, feature: Feature, values: np.ndarray | list[Any]) -> np.ndarray:
        if isinstance(values, np.ndarray):
            return values[:, None]
        table = np.zeros((len(values), feature.slots))
        if feature.kind == "time":
            for row, value in enumerate(values):
                if value is not None:
                    table[row] = calendar(value)
            return table
        slot_of = self._slot if feature.kind == "category" else _bucket
        for row, value in enumerate(values):
            if value is not None:
                slot, sign = slot_of(feature, value)
                table[row, slot] = sign
        return table

    def _slot(self, feature: Feature, word: str) -> tuple[int, float]:
        """A category's own slot, the next free one where it is new; the last is shared by all that come too late."""
        index = self._index[feature.name]
        if word not in index and len(index) < feature.slots - 1:
            index[word] = len(index)
            self.vocabularies[feature.name].append(word)
        return index.get(word, feature.slots - 1), 1.0

    def _names(self, feature: Feature) -> list[str]:
        if feature.kind == "boolean":
            return [feature.name]
        if feature.kind == "time":
            return [f"{feature.name} {part}" for part in CALENDAR]
        if feature.kind == "hashed":
            return [f"{feature.name} #{slot}" for slot in range(feature.slots)]
        words = self.vocabularies[feature.name]
        free = [f"(slot {slot})" for slot in range(len(words), feature.slots - 1)]
        return [f"{feature.name}={word}" for word in [*words, *free, "(other)"]]


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


def plain_numbers(column: list[Any]) -> np.ndarray | None:
    """A column of text that is all plain finite numbers, read at once; None if anything needs a closer look."""
    try:
        text = "".join(column)
        values = np.array(list(map(float, column)), np.float64)
    except (TypeError, ValueError):
        return None
    return values if text.isascii() and "_" not in text and np.isfinite(values).all() else None


def number_reader(target: Target) -> Callable[[Any], float]:
    """A number this task can have."""

    def read(cell: Any) -> float:
        value = cells.number(cell)
        if target.task == "count" and not math.isnan(value) and (value < 0 or value != math.floor(value)):
            raise ValueError(f"{cells.cut(cell)} is not a count (0, 1, 2, ...)")
        if target.task == "positive" and value <= 0:
            raise ValueError(f"{cells.cut(cell)} is not positive")
        return value

    return read


def class_reader(target: Target) -> Callable[[Any], float]:
    """The number of the class."""
    index = {name: float(position) for position, name in enumerate(target.classes)}

    def read(cell: Any) -> float:
        word = cells.label(cell)
        if word is None:
            return math.nan
        if word not in index and word in ("0.0", "1.0"):
            word = word[0]
        if word not in index:
            known = ", ".join(target.classes[:8]) + (", ..." if len(target.classes) > 8 else "")
            raise ValueError(f"{cells.cut(cell)} is not one of the {len(index)} classes ({known})")
        return index[word]

    return read


CALENDAR = ("day sin", "day cos", "week sin", "week cos", "year sin", "year cos")


def calendar(moment: datetime.datetime) -> list[float]:
    """Where in the day, the week and the year, each as a point on a circle."""
    day = (moment.hour * 3600 + moment.minute * 60 + moment.second) / 86400
    week = (moment.weekday() + day) / 7
    year = (moment.timetuple().tm_yday - 1 + day) / 365.25
    return [wave(2 * math.pi * phase) for phase in (day, week, year) for wave in (math.sin, math.cos)]


def _fits(target: Target, column: np.ndarray) -> bool:
    """Whether these finite numbers can be taken as they are."""
    return target.task == "regression" or (target.classes == ("0", "1") and bool(np.isin(column, (0.0, 1.0)).all()))


def _bucket(feature: Feature, word: str) -> tuple[int, float]:
    """A signed hash: the same on every machine and in every run."""
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:7], "little") % feature.slots, 1.0 if digest[7] & 1 else -1.0


def _pick(values: np.ndarray | list[Any], good: np.ndarray) -> Any:
    if isinstance(values, np.ndarray):
        return values if good.all() else values[good]
    return values if good.all() else [value for value, keep in zip(values, good, strict=True) if keep]


def _is_missing(values: np.ndarray | Sequence[Any]) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return np.isnan(values)
    return np.array([value is None for value in values], bool)


def _text(rows: Rows, row: int) -> str:
    return ",".join("" if column[row] is None else str(column[row]) for column in rows.columns.values())[:200]
