"""What each column is, decided from the first rows and kept with the checkpoint."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from natkal.errors import StreamError, did_you_mean
from natkal.tables.schema import cells
from natkal.tables.schema.guess import (
    KINDS,
    MOST,
    TASKS,
    guess_kind,
    guess_task,
    kind_reader,
    mostly,
    mostly_numbers,
    number_reader,
    readable,
)
from natkal.tables.schema.rows import Column, unnamed
from natkal.tables.schema.written_numbers import COMMA, FOLLOW, POINT, UNCLEAR, Survey, common_sign, survey

ONE_HOT = 32
"""Categories with more values than this in the first rows are hashed, unless the column was named a category."""
MOST_VALUES = 1_000
"""The most values of a column that was named a category."""
LATE_SLOTS = 16
"""Slots of a category that appeared after the first rows, of which nobody knows how many values it has."""
MAX_CLASSES = 10_000
"""The most classes a target may come to have."""
UNLIKE_VALUES, UNLIKE_SHARE = 50, 0.9
"""Text of which more than 50 values differ, and more than nine in ten, is no category."""


@dataclasses.dataclass(frozen=True)
class Feature:
    """One column that is used.

    `slots`: how many numbers it becomes. `flag_missing`: one more says whether it is missing. `decimal`: the decimal
    sign of numbers written as text. `optional`: some of the first rows lack it. `late`: all of them do.
    """

    name: str
    kind: str
    slots: int
    flag_missing: bool
    decimal: str = POINT
    optional: bool = False
    late: bool = False


@dataclasses.dataclass(frozen=True)
class Target:
    """One column to predict: the task, why, and the classes known where there are any.

    `limit`: the most classes there may be; one that is new is added below it and rejected above. `whole`: classes are
    whole numbers, so 1, 1.0 and 01 are the same one.
    """

    name: str
    task: str
    classes: tuple[str, ...]
    why: str
    limit: int = 0
    whole: bool = False
    decimal: str = POINT


@dataclasses.dataclass(frozen=True)
class Schema:
    """Everything about the columns that learning depends on.

    `open_columns`: columns that appear later are features too. `awaited`: columns that were asked for and have not
    appeared, each with its kind, "" to find out.
    """

    features: tuple[Feature, ...]
    targets: tuple[Target, ...]
    key: str | None
    sequence: str | None
    missing: str
    ignored: dict[str, str]
    open_columns: bool = False
    awaited: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain lists, dictionaries and strings."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Schema":
        """The inverse of `to_json`."""
        targets = (Target(**{**entry, "classes": tuple(entry["classes"])}) for entry in data["targets"])
        return cls(
            features=tuple(Feature(**entry) for entry in data["features"]),
            targets=tuple(targets),
            key=data["key"],
            sequence=data["sequence"],
            missing=data["missing"],
            ignored=dict(data["ignored"]),
            open_columns=data["open_columns"],
            awaited=dict(data["awaited"]),
        )

    @functools.cached_property
    def plain_features(self) -> tuple[str, ...]:
        """The features, where every one of them is a plain number; empty otherwise."""
        plain = all(
            feature.kind == "number" and not feature.flag_missing and feature.decimal == POINT
            for feature in self.features
        )
        return tuple(feature.name for feature in self.features) if plain else ()

    @property
    def all_numbers(self) -> list[str]:
        """The columns in use, where every one of them is a plain number; empty otherwise."""
        targets = all(target.whole if target.classes else target.decimal == POINT for target in self.targets)
        if not self.plain_features or not targets or self.key is not None or self.sequence is not None:
            return []
        return [*(feature.name for feature in self.features), *(target.name for target in self.targets)]


def infer(
    sample: Mapping[str, Column],
    targets: Sequence[str],
    *,
    task: str | None = None,
    features: Sequence[str] = (),
    classes: Sequence[str] = (),
    key: str | None = None,
    sequence: str | None = None,
    missing: str = "impute",
    apart: Sequence[str] = (),
    decimal: str = "auto",
    open_columns: bool = False,
    kinds: Mapping[str, str] | None = None,
) -> Schema:
    """The schema of these first rows.

    `features` entries are `name`, `name:kind` or `-name`; `apart` are never used; `decimal` (auto, . or ,) is the sign
    of columns that leave it open; with `open_columns` others may appear later; `kinds` are what columns are by their
    type, where nothing else is asked for.
    """
    typed = kinds or {}
    if decimal not in ("auto", POINT, COMMA):
        raise StreamError(f"--decimal: {decimal!r} is not one of auto, . and ,")
    for name in [*targets, *(name for name in (key, sequence, *apart) if name)]:
        if name not in sample:
            raise StreamError(f"there is no column {name!r}; {_has(sample, name)}")
    wanted, left_out = _wanted(features, sample, open_columns)
    kept = [name for name in sample if name in targets or (name in wanted if wanted else name not in left_out)]
    present = {name: [cell for cell in sample[name] if not cells.is_missing(cell)] for name in kept}
    surveys = {name: survey(column) for name, column in present.items()}
    signs = _signs(surveys, decimal)
    used: list[Feature] = []
    ignored = dict.fromkeys(apart, "names the rows")
    for name, column in sample.items():
        if name in targets or name in (key, sequence) or name in ignored:
            continue
        if name not in present:
            ignored[name] = "not asked for"
            continue
        if open_columns and not present[name]:
            continue  # it has not appeared
        feature, reason = _feature(
            name,
            present[name],
            len(column),
            wanted.get(name) or typed.get(name),
            surveys[name],
            signs[name],
            one_hot=wanted.get(name) == "category",
        )
        if feature is None or (reason and name not in wanted):
            ignored[name] = reason
        else:
            used.append(feature)
    return Schema(
        features=tuple(used),
        targets=tuple(_target(name, list(sample[name]), task, classes, signs, typed.get(name)) for name in targets),
        key=key,
        sequence=sequence,
        missing=missing,
        ignored=ignored | {name: "not asked for" for name in left_out if name not in sample},
        open_columns=open_columns and not wanted and missing != "reject",
        awaited={name: kind or "" for name, kind in wanted.items() if not present.get(name)} if open_columns else {},
    )


def late_feature(name: str, cell: Any, kind: str = "") -> tuple[Feature | None, str]:
    """The feature of a column that appeared after the first rows, by its first cell; or why there is none.

    One cell, and not all of a block, so that it does not depend on where blocks end. Text is a category: another cell
    of the column need not be a number or a date because the first one was.
    """
    if isinstance(cell, dict | list | bytes):
        return None, "nested values"
    if not kind:
        kind = "boolean" if isinstance(cell, bool) else "category" if isinstance(cell, str) else "number"
    slots = {"number": 1, "boolean": 1, "time": 6, "category": LATE_SLOTS, "hashed": ONE_HOT}[kind]
    flag = kind in ("number", "boolean")
    return Feature(name=name, kind=kind, slots=slots, flag_missing=flag, optional=True, late=True), ""


def _has(sample: Mapping[str, Column], wanted: str) -> str:
    names = list(sample)
    more = f" and {len(names) - 50:,} more" if len(names) > 50 else ""
    return f"{did_you_mean(wanted, names)}the data has {', '.join(names[:50])}{more}"


def _wanted(
    features: Sequence[str], sample: Mapping[str, Column], open_columns: bool
) -> tuple[dict[str, str | None], set[str]]:
    wanted: dict[str, str | None] = {}
    left_out: set[str] = set()
    for entry in features:
        name, colon, kind = (entry, "", "") if entry in sample else entry.removeprefix("-").rpartition(":")
        if not colon:
            name, kind = (entry if entry in sample else entry.removeprefix("-")), ""
        if name not in sample and not open_columns:
            raise StreamError(f"--features: there is no column {name!r}; {_has(sample, name)}")
        if colon and kind not in KINDS:
            raise StreamError(f"--features: {kind!r} is not one of {', '.join(KINDS)} (column {name!r})")
        if entry.startswith("-") and entry not in sample:
            left_out.add(name)
        else:
            wanted[name] = kind or None
    return wanted, left_out


def _signs(surveys: Mapping[str, Survey], decimal: str) -> dict[str, str]:
    """The decimal sign of each column: the one its cells show, otherwise the given one, the table's, or a point."""
    own = {name: found.sign for name, found in surveys.items()}
    table = common_sign(list(own.values())) if decimal == "auto" else decimal
    otherwise = {FOLLOW: table or POINT, UNCLEAR: table or UNCLEAR}
    return {name: otherwise.get(sign, sign) for name, sign in own.items()}


def _feature(
    name: str, present: Sequence[Any], rows: int, asked: str | None, found: Survey, sign: str, *, one_hot: bool
) -> tuple[Feature | None, str]:
    """The feature a column is, and why it is not used unless it is asked for. `one_hot`: named a category."""
    if not present and asked is None:
        return None, "empty in the first rows"
    if asked is None and not mostly(present, cells.label):
        return None, "nested values"
    decimal = _decided("column", name, present, sign) if asked in (None, "number") else POINT
    kind = asked or guess_kind(present, decimal)
    if asked is not None:
        odd = [cell for cell in present if not readable([cell], kind_reader(kind, decimal))]
        if 2 * len(odd) > len(present):
            raise StreamError(f"--features: column {name!r} cannot be read as {kind}, it holds {cells.cut(odd[0])}")
    optional = len(present) < rows
    slots = {"number": 1, "boolean": 1, "time": 6, "category": 0, "hashed": ONE_HOT}[kind]
    reason = "counts the rows" if kind == "number" and name == unnamed(1) and _counts_rows(present) else ""
    if kind == "category":
        distinct = len({cells.label(cell) for cell in readable(present, cells.label)})
        if one_hot and distinct > MOST_VALUES:
            raise StreamError(
                f"--features: column {name!r} has {distinct:,} values in the first rows, more than the {MOST_VALUES:,} "
                f"of a category; {name}:hashed lets values share {ONE_HOT} numbers"
            )
        kind = "hashed" if distinct > ONE_HOT and not one_hot else kind
        slots = max(4, distinct + (distinct + 1) // 2)
        slots = slots if one_hot and distinct > ONE_HOT else min(ONE_HOT, slots)
        if found.mixed(MOST):
            reason = "numbers with decimal points and numbers with decimal commas"
        elif distinct > max(UNLIKE_VALUES, UNLIKE_SHARE * len(present)):
            reason = "text in which nearly every value differs"
    feature = Feature(
        name=name,
        kind=kind,
        slots=slots,
        flag_missing=optional and kind in ("number", "boolean"),
        decimal=decimal if kind == "number" else POINT,
        optional=optional,
    )
    return feature, reason


def _counts_rows(present: Sequence[Any]) -> bool:
    """Whether each cell is the one before plus one, as in the index that pandas writes."""
    values = [cells.number(cell) for cell in readable(present, cells.number)]
    return all(later == earlier + 1 for earlier, later in itertools.pairwise(values))


def _decided(what: str, name: str, present: Sequence[Any], sign: str) -> str:
    """The decimal sign of a column of numbers; a question where its cells can be read in two ways."""
    if sign != UNCLEAR:
        return sign
    if not mostly_numbers(present, POINT):
        return POINT
    cell = next(cell for cell in present if isinstance(cell, str) and COMMA in cell)
    raise StreamError(
        f"{what} {name!r}: {cells.cut(cell)} may be {cells.number(cell, POINT):.10g} or "
        f"{cells.number(cell, COMMA):.10g}; say which with --decimal . (thousands) or --decimal , (decimals)"
    )


def _target(
    name: str,
    column: list[Any],
    task: str | None,
    classes: Sequence[str],
    signs: Mapping[str, str],
    kind: str | None = None,
) -> Target:
    present = [cell for cell in column if not cells.is_missing(cell)]
    if not present and task is None and not classes:
        raise StreamError(f"target {name!r} is empty in all of the first {len(column):,} rows: name its --task")
    if task is not None and task not in TASKS:
        raise StreamError(f"--task: {task!r} is not one of {', '.join(TASKS)}")
    asked, why = task, "as asked"
    if kind == "category" and task is None:
        task, why = "multiclass", "categories by its type"
    if classes and task is None:
        task = "binary" if len(classes) == 2 else "multiclass"
    decimal = POINT if task in ("binary", "multiclass") else _decided("target", name, present, signs[name])
    if task is None:
        task, why = guess_task(name, present, decimal)
    if task in ("binary", "multiclass"):
        return _class_target(name, present, task, asked, classes, why)
    if present and not mostly_numbers(present, decimal):
        odd = next(cell for cell in present if not readable([cell], number_reader(decimal)))
        raise StreamError(f"target {name!r}: {cells.cut(odd)} is not a number, which a {task} needs")
    return Target(name=name, task=task, classes=(), why=why, decimal=decimal)


def _class_target(
    name: str, present: list[Any], task: str, asked: str | None, classes: Sequence[str], why: str
) -> Target:
    """Classes are those given, or those of the first rows and whatever comes later; two where two were asked for."""
    labels = readable(present, cells.label)
    whole = bool(labels) and all(cells.is_whole(str(cells.class_name(cell, whole=True))) for cell in labels)
    if classes:
        found = tuple(dict.fromkeys(classes))
        whole = all(cells.is_whole(entry) for entry in found)
    elif labels and all(isinstance(cell, bool) for cell in labels):
        found = ("false", "true")
    else:
        found = tuple(sorted({str(cells.class_name(cell, whole=whole)) for cell in labels}, key=_order))
    if classes and len(found) < 2:
        raise StreamError(f"target {name!r}: --classes names one class ({classes[0]}); name all of them")
    if (classes or asked == "binary") and task == "binary" and len(found) > 2:
        raise StreamError(f"target {name!r} has {len(found):,} classes ({', '.join(found[:5])}, ...), not two")
    if len(found) > MAX_CLASSES:
        raise StreamError(f"target {name!r} has {len(found):,} classes, more than {MAX_CLASSES:,}")
    if not found:
        raise StreamError(f"target {name!r} is empty in the first rows: name its --classes")
    limit = len(found) if classes else 2 if asked == "binary" or found == ("false", "true") else MAX_CLASSES
    task = "binary" if len(found) == 2 or asked == "binary" else "multiclass"
    return Target(name=name, task=task, classes=found, why=why, limit=limit, whole=whole)


def _order(name: str) -> tuple[int, float, str]:
    try:
        return 0, cells.number(name), name
    except ValueError:
        return 1, 0.0, name
