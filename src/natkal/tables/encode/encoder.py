"""Rows into numbers: inputs and targets for each row that can be used, a reason for each that cannot."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from natkal.errors import located
from natkal.tables.encode.classes import ClassNumbers, number_classes
from natkal.tables.schema import cells
from natkal.tables.schema.columns import (
    CALENDAR,
    bucket,
    calendar,
    is_missing,
    pick,
    read_column,
    row_text,
    target_reader,
)
from natkal.tables.schema.guess import kind_reader
from natkal.tables.schema.infer import Feature, Schema, late_feature
from natkal.tables.schema.rows import Reject, Rows
from natkal.tables.schema.times import seconds
from natkal.tables.schema.written_numbers import POINT, plain_numbers

MAX_LATE_COLUMNS = 64
"""How many columns may be taken on after the first rows."""


class Encoded(NamedTuple):
    """What a learner takes of some rows: numbers (NaN where missing), keys, sequences and lines; and the rejects."""

    inputs: np.ndarray
    targets: np.ndarray
    keys: list[str]
    sequences: list[str]
    lines: np.ndarray
    file: str
    rejects: list[Reject]
    times: np.ndarray | None = None
    """Seconds since 1970 in the first column of times, NaN where missing; None without such a column."""
    additions: Mapping[str, Mapping[str, int]] = {}
    """Categories (by feature) and classes (by target) that were not known, with their numbers, for `accept`."""
    resets: np.ndarray | None = None
    """Where new sequences start; None where there are none."""
    waited: Sequence[np.ndarray | None] = ()
    """Of each row what is kept of it while it waits for its label, or was kept: past targets, then inputs."""


class NewColumn(NamedTuple):
    """A column that was not there before: the first row of a block that has it, and the feature it would be."""

    row: int
    feature: Feature


class Encoder:
    """Turns rows into numbers, by the schema. Its vocabularies, classes and columns only ever grow.

    `encode` changes nothing: categories and classes that are new are numbered behind the known ones, and are known once
    they are accepted.

    A row's numbers stand in the order of the schema's features: the slots of each, then its missing flag if it has one.
    A feature that is added stands behind all others, so no number ever moves. `Encoder(encoder.schema,
    encoder.vocabularies)` goes on where `encoder` stands.
    """

    def __init__(self, schema: Schema, vocabularies: dict[str, list[str]] | None = None):
        self._schema = schema
        self.vocabularies: dict[str, list[str]] = {}
        self._index: dict[str, dict[str, int]] = {}
        for feature in schema.features:
            self._open_vocabulary(feature, (vocabularies or {}).get(feature.name, []))
        self._numbers = {target.name: ClassNumbers(target) for target in schema.targets if target.classes}

    @property
    def schema(self) -> Schema:
        """The schema as it is now, with the features and classes that were added."""
        targets = tuple(
            dataclasses.replace(target, classes=tuple(self._numbers[target.name].names)) if target.classes else target
            for target in self._schema.targets
        )
        return dataclasses.replace(self._schema, targets=targets)

    @property
    def classes(self) -> dict[str, list[str]]:
        """The classes of each target that has any, as many as have appeared; a class's number is its place."""
        return {name: numbers.names for name, numbers in self._numbers.items()}

    @property
    def names(self) -> list[str]:
        """A name for each number of a row, as it stands now (categories take their names as they appear)."""
        names = []
        for feature in self._schema.features:
            names.extend(self._names(feature))
            names.extend([f"{feature.name} is missing"] * feature.flag_missing)
        return names

    @property
    def owners(self) -> list[str]:
        """The column that each number of a row comes from."""
        return [feature.name for feature in self._schema.features for _ in range(_size(feature))]

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return sum(map(_size, self._schema.features))

    @property
    def scaled(self) -> np.ndarray:
        """Which numbers of a row are plain ones, to be standardised; the others are already of order one."""
        mask = np.zeros(self.width, bool)
        first = 0
        for feature in self._schema.features:
            mask[first] = feature.kind == "number"
            first += _size(feature)
        return mask

    # -- columns that come and go --------------------------------------------------------------------------------------

    def missing_columns(self, names: Iterable[str]) -> list[str]:
        """The columns that predictions need and a file with these columns lacks.

        Where columns may come and go, those that some of the first rows lacked are not needed.
        """
        schema, there = self._schema, set(names)
        needed = [feature.name for feature in schema.features if not (schema.open_columns and feature.optional)]
        return [name for name in (*needed, schema.key, schema.sequence) if name is not None and name not in there]

    def new_columns(self, rows: Rows) -> list[NewColumn]:
        """The columns of these rows that could be features and are none yet, by the row that first has them.

        To get the same numbers wherever blocks end: `encode(rows.part(0, row))`, then `add`, then the rest.
        """
        schema = self._schema
        if not schema.open_columns and not schema.awaited:
            return []
        known = {feature.name for feature in schema.features} | {target.name for target in schema.targets}
        known |= {schema.key, schema.sequence, *schema.ignored}
        room = MAX_LATE_COLUMNS - sum(feature.late for feature in schema.features)
        found, ignored = [], dict(schema.ignored)
        for name, column in rows.columns.items():
            if name in known or not (schema.open_columns or name in schema.awaited):
                continue
            row = next((row for row, cell in enumerate(column) if not cells.is_missing(cell)), None)
            if row is None:
                continue
            feature, reason = late_feature(name, column[row], schema.awaited.get(name, ""))
            if feature is None:
                ignored[name] = reason
            else:
                found.append(NewColumn(row, feature))
        found.sort(key=lambda new: (new.row, new.feature.name))
        full = f"and all that follow: {MAX_LATE_COLUMNS} columns had appeared after the first rows"
        if len(found) > room and full not in ignored.values():
            ignored[found[room].feature.name] = full
        if len(ignored) > len(schema.ignored):
            self._schema = dataclasses.replace(schema, ignored=ignored)
        return found[:room]

    def add(self, feature: Feature) -> None:
        """Take on one more feature; its numbers stand behind all others."""
        self._schema = dataclasses.replace(self._schema, features=(*self._schema.features, feature))
        self._open_vocabulary(feature, [])

    def accept(self, additions: Mapping[str, Mapping[str, int]]) -> None:
        """Know the categories and classes of rows that were encoded since the last time."""
        for name, words in additions.items():
            if name in self._numbers:
                self._numbers[name].add(words)
            else:
                self._index[name].update(words)
                self.vocabularies[name].extend(words)

    def _open_vocabulary(self, feature: Feature, words: list[str]) -> None:
        if feature.kind == "category":
            self.vocabularies[feature.name] = list(words)
            self._index[feature.name] = {word: slot for slot, word in enumerate(words)}

    # -- rows ----------------------------------------------------------------------------------------------------------

    def encode_plain(self, records: Sequence[Mapping[str, Any]], *, targets: bool) -> Encoded | None:
        """`encode` for records in which every feature is a number and every target known; None for any others."""
        names = self._schema.plain_features
        if not names or not records or self._schema.key is not None or self._schema.sequence is not None:
            return None
        values = itemgetter(*names)
        reasons: dict[int, str] = {}
        observed = np.full((len(records), len(self._schema.targets)), np.nan)
        try:
            inputs = np.array([values(record) for record in records]).reshape(len(records), -1)
            if inputs.dtype.kind not in "fi" or not np.isfinite(inputs).all():
                return None
            for place, target in enumerate(self._schema.targets if targets else ()):
                column = [record[target.name] for record in records]
                if target.classes:
                    read = self._numbers[target.name].read(column, reasons)
                    if not isinstance(read, np.ndarray) or np.isnan(read).any():
                        return None
                    observed[:, place] = read
                else:
                    observed[:, place] = read_column(target.name, column, target_reader(target), reasons)
        except (KeyError, TypeError, ValueError):
            return None
        if reasons or (targets and np.isnan(observed).any()):
            return None
        lines = np.arange(1, len(records) + 1)
        return Encoded(inputs.astype(np.float64, copy=False), observed, [], [], lines, "", [])

    def encode(self, rows: Rows, *, grow: bool = True, labels: Collection[int] = ()) -> Encoded:
        """The rows that can be used, in order, and the rejects among them and before them.

        Without `grow` each category never seen counts as the next one to come. Of `labels` the features are known
        already: they may be missing.
        """
        with located(lambda: f"{rows.file}, lines {_line(rows, 0)} to {_line(rows, -1)}"):
            return self._encode(rows, grow, labels)

    def _encode(self, rows: Rows, grow: bool, labels: Collection[int]) -> Encoded:
        reasons: dict[int, str] = {}
        added: dict[str, dict[str, int]] = {}
        features = self._schema.features
        parsed = [self._parse(feature, rows, reasons) for feature in features]
        keys = self._keys(rows, reasons)
        sequences = self._labels(self._schema.sequence, rows, reasons)
        if self._schema.missing == "reject":
            for feature, values in zip(features, parsed, strict=True):
                for row in set(np.flatnonzero(is_missing(values)).tolist()).difference(labels):
                    reasons.setdefault(row, f"column {feature.name!r}: the value is missing")
        targets = self._targets(rows, reasons, added)
        good = np.ones(len(rows), bool)
        good[list(reasons)] = False
        inputs = np.zeros((int(good.sum()), self.width))
        clock = next((place for place, feature in enumerate(features) if feature.kind == "time"), None)
        first = 0
        for feature, values in zip(features, parsed, strict=True):
            self._fill(inputs[:, first : first + _size(feature)], feature, pick(values, good), added if grow else None)
            first += _size(feature)
        rejects = [
            *rows.rejects,
            *(Reject(rows.file, int(rows.lines[row]), reasons[row], row_text(rows, row)) for row in sorted(reasons)),
        ]
        return Encoded(
            inputs=inputs,
            targets=np.stack([pick(values, good) for values in targets], axis=1),
            keys=pick(keys, good) if keys else [],
            sequences=pick(sequences, good) if sequences else [],
            lines=rows.lines[good],
            file=rows.file,
            rejects=sorted(rejects, key=lambda reject: reject.line),
            times=None if clock is None else seconds(pick(parsed[clock], good)),
            additions=added,
        )

    def _parse(self, feature: Feature, rows: Rows, reasons: dict[int, str]) -> np.ndarray | list[Any]:
        column = rows.columns.get(feature.name)
        if column is None:
            column = [None] * len(rows)
        if feature.kind == "number":
            if isinstance(column, np.ndarray):
                return column
            plain = plain_numbers(column) if feature.decimal == POINT else None
            if plain is not None:
                return plain
        values = read_column(feature.name, column, kind_reader(feature.kind, feature.decimal), reasons)
        return np.array(values, np.float64) if feature.kind in ("number", "boolean") else values

    def _targets(self, rows: Rows, reasons: dict[int, str], added: dict[str, dict[str, int]]) -> list[np.ndarray]:
        values: dict[str, np.ndarray] = {}
        named = []
        for target in self._schema.targets:
            column = rows.columns.get(target.name)
            if column is None:
                values[target.name] = np.full(len(rows), np.nan)
            elif target.classes:
                numbers = self._numbers[target.name]
                named.append((numbers, target.name, numbers.read(column, reasons)))
            elif isinstance(column, np.ndarray) and target.task == "regression":
                values[target.name] = column
            else:
                read = read_column(target.name, column, target_reader(target), reasons)
                values[target.name] = np.array(read, np.float64)
        for (_, name, _), table in zip(named, number_classes(named, reasons, len(rows), added), strict=True):
            values[name] = table
        return [values[target.name] for target in self._schema.targets]

    def _keys(self, rows: Rows, reasons: dict[int, str]) -> list[str]:
        keys = self._labels(self._schema.key, rows, reasons)
        for row, value in enumerate(keys):
            if not value:
                reasons.setdefault(row, f"column {self._schema.key!r}: the key is missing")
        return keys

    def _labels(self, name: str | None, rows: Rows, reasons: dict[int, str]) -> list[str]:
        """The column's values as names, empty where missing; an empty list where there is no such column to read."""
        if name is None:
            return []
        values = read_column(name, rows.columns.get(name, [None] * len(rows)), cells.label, reasons)
        return ["" if value is None else value for value in values]

    def _fill(
        self,
        table: np.ndarray,
        feature: Feature,
        values: np.ndarray | list[Any],
        added: dict[str, dict[str, int]] | None,
    ) -> None:
        """Write the numbers of one feature into the zeros of `table`."""
        if isinstance(values, np.ndarray):
            table[:, 0] = values
        elif feature.kind == "time":
            for row, value in enumerate(values):
                if value is not None:
                    table[row] = calendar(value)
        else:
            for row, value in enumerate(values):
                if value is not None:
                    own = feature.kind == "category"
                    slot, sign = (self._slot(feature, value, added), 1.0) if own else bucket(feature, value)
                    table[row, slot] = sign
        if feature.flag_missing:
            table[:, -1] = is_missing(values)

    def _slot(self, feature: Feature, word: str, added: dict[str, dict[str, int]] | None) -> int:
        """A category's own slot, the next free one where it is new; the last is shared by all that come too late."""
        index = self._index[feature.name]
        if word in index:
            return index[word]
        new = {} if added is None else added.setdefault(feature.name, {})
        following = min(len(index) + len(new), feature.slots - 1)
        if following < feature.slots - 1:
            new.setdefault(word, following)
        return new.get(word, following)

    def _names(self, feature: Feature) -> list[str]:
        if feature.kind in ("number", "boolean"):
            return [feature.name]
        if feature.kind == "time":
            return [f"{feature.name} {part}" for part in CALENDAR]
        if feature.kind == "hashed":
            return [f"{feature.name} #{slot}" for slot in range(feature.slots)]
        words = self.vocabularies[feature.name]
        free = [f"(slot {slot})" for slot in range(len(words), feature.slots - 1)]
        return [f"{feature.name}={word}" for word in [*words, *free, "(other)"]]


def _size(feature: Feature) -> int:
    """How many numbers of a row the feature has."""
    return feature.slots + feature.flag_missing


def _line(rows: Rows, row: int) -> str:
    return f"{int(rows.lines[row]):,}" if len(rows) else "none"
