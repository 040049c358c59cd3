"""What each column is, decided once from the first rows and kept with the checkpoint."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from natkal.tabular import cells
from natkal.tabular.errors import StreamError
from natkal.tabular.table import Column

KINDS = ("number", "boolean", "category", "hashed", "time")
TASKS = ("regression", "binary", "multiclass", "count", "positive")
FEW = 12
"""Whole numbers with at most this many different values are taken for classes."""
MOST = 0.9
"""A column is what at least this share of its first cells look like."""
ONE_HOT = 32
"""Categories with more values than this in the first rows are hashed."""


@dataclasses.dataclass(frozen=True)
class Feature:
    """One column that is used: its kind, how many slots a category has, whether a missing value gets a flag."""

    name: str
    kind: str
    slots: int
    flag_missing: bool


@dataclasses.dataclass(frozen=True)
class Target:
    """One column to predict: the task, and the classes where there are any."""

    name: str
    task: str
    classes: tuple[str, ...]
    why: str


@dataclasses.dataclass(frozen=True)
class Schema:
    """Everything about the columns that learning depends on."""

    features: tuple[Feature, ...]
    targets: tuple[Target, ...]
    key: str | None
    sequence: str | None
    missing: str
    ignored: dict[str, str]

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
        )

    @property
    def all_numbers(self) -> list[str]:
        """The columns in use, where every one of them is a plain number; empty otherwise."""
        plain = all(feature.kind == "number" and not feature.flag_missing for feature in self.features)
        numeric = all(target.task != "multiclass" and not _named(target) for target in self.targets)
        if not plain or not numeric or self.key is not None or self.sequence is not None:
            return []
        return [*(feature.name for feature in self.features), *(target.name for target in self.targets)]


def _named(target: Target) -> bool:
    return target.task == "binary" and target.classes not in (("0", "1"),)


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
) -> Schema:
    """The schema of these first rows. `features` entries are `name`, `name:kind` or `-name`; `apart` are never used."""
    apart = [name for name in (key, sequence, *apart) if name]
    for name in [*targets, *apart]:
        if name not in sample:
            raise StreamError(f"there is no column {name!r}; the data has {', '.join(sample)}")
    wanted, left_out = _wanted(features, sample)
    used, ignored = [], {}
    for name, column in sample.items():
        if name in targets or name in apart:
            continue
        if name in left_out or (wanted and name not in wanted):
            ignored[name] = "not asked for"
            continue
        feature, reason = _feature(name, list(column), wanted.get(name))
        if feature is None or (reason and name not in wanted):
            ignored[name] = reason
        else:
            used.append(feature)
    chosen = tuple(_target(name, list(sample[name]), task, classes) for name in targets)
    return Schema(features=tuple(used), targets=chosen, key=key, sequence=sequence, missing=missing, ignored=ignored)


def _wanted(features: Sequence[str], sample: Mapping[str, Column]) -> tuple[dict[str, str | None], set[str]]:
    wanted: dict[str, str | None] = {}
    left_out: set[str] = set()
    for entry in features:
        name, colon, kind = entry.removeprefix("-").partition(":")
        if name not in sample:
            raise StreamError(f"--features: there is no column {name!r}; the data has {', '.join(sample)}")
        if colon and kind not in KINDS:
            raise StreamError(f"--features: {kind!r} is not one of {', '.join(KINDS)} (column {name!r})")
        if entry.startswith("-"):
            left_out.add(name)
        else:
            wanted[name] = kind or None
    return wanted, left_out


def _readable(column: Sequence[Any], read: Callable[[Any], Any]) -> list[Any]:
    """The cells that can be read so."""
    good = []
    for cell in column:
        try:
            read(cell)
        except ValueError:
            continue
        good.append(cell)
    return good


def _most(column: Sequence[Any], read: Callable[[Any], Any]) -> bool:
    """Whether nearly all cells can be read so; the others are wrong, and their rows will be rejected."""
    return len(_readable(column, read)) >= MOST * len(column)


def _feature(name: str, column: list[Any], kind: str | None) -> tuple[Feature | None, str]:
    present = [cell for cell in column if not cells.is_missing(cell)]
    flag = len(present) < len(column)
    if kind is None:
        if not present:
            return None, "empty in the first rows"
        if all(isinstance(cell, dict | list) for cell in present):
            return None, "nested values"
        if all(isinstance(cell, bool) for cell in present) or (_most(present, cells.boolean) and _words(present)):
            kind = "boolean"
        elif _most(present, cells.number):
            kind = "number"
        elif _most(present, cells.moment):
            kind = "time"
        else:
            kind = "category"
    if kind in ("number", "boolean"):
        return Feature(name=name, kind=kind, slots=1, flag_missing=flag), ""
    if kind == "time":
        return Feature(name=name, kind=kind, slots=6, flag_missing=False), ""
    distinct = len({cells.label(cell) for cell in _readable(present, cells.label)})
    if kind == "category" and distinct > ONE_HOT:
        kind = "hashed"
    slots = ONE_HOT if kind == "hashed" else min(ONE_HOT, max(4, distinct + (distinct + 1) // 2))
    unlike = distinct > 50 and distinct > 0.9 * len(present)
    return Feature(name=name, kind=kind, slots=slots, flag_missing=False), (
        "almost every value is different" if unlike else ""
    )


def _words(present: list[Any]) -> bool:
    """Whether true and false are mostly written as words: a column of 0 and 1 is one of numbers."""
    digits = sum(str(cell).strip() in ("0", "1", "0.0", "1.0") for cell in present)
    return digits < len(present) / 2


def _target(name: str, column: list[Any], task: str | None, classes: Sequence[str]) -> Target:
    present = [cell for cell in column if not cells.is_missing(cell)]
    if not present and task is None:
        raise StreamError(f"target {name!r} is empty in all of the first {len(column)} rows: name its --task")
    if task is not None and task not in TASKS:
        raise StreamError(f"--task: {task!r} is not one of {', '.join(TASKS)}")
    why = "as asked"
    if classes and task is None:
        task = "binary" if len(classes) == 2 else "multiclass"
    if task is None:
        task, why = guess_task(present)
    if task in ("binary", "multiclass"):
        found = tuple(classes) or tuple(sorted({str(cells.label(cell)) for cell in present}, key=_order))
        if len(found) < 2:
            raise StreamError(
                f"target {name!r} has one class in the first {len(column)} rows ({', '.join(found)}): "
                "name all of them with --classes"
            )
        if task == "binary" and len(found) > 2:
            raise StreamError(f"target {name!r} has {len(found)} classes ({', '.join(found[:5])}, ...), not two")
        return Target(name=name, task="binary" if len(found) == 2 else "multiclass", classes=found, why=why)
    if not _most(present, cells.number):
        odd = next(cell for cell in present if cell not in _readable(present, cells.number))
        raise StreamError(f"target {name!r}: {cells.cut(odd)} is not a number, which a {task} needs")
    return Target(name=name, task=task, classes=(), why=why)


def guess_task(present: Sequence[Any]) -> tuple[str, str]:
    """Which task these target values look like, and why."""
    if all(isinstance(cell, bool) for cell in present) or not _most(present, cells.number):
        count = len({cells.label(cell) for cell in present})
        return ("binary" if count == 2 else "multiclass"), f"{count} names"
    values = np.array([cells.number(cell) for cell in _readable(present, cells.number)])
    distinct = len(np.unique(values))
    if np.all(values == np.floor(values)):
        if distinct <= FEW:
            return ("binary" if distinct == 2 else "multiclass"), f"{distinct} different whole numbers"
        if values.min() >= 0:
            return "count", "whole numbers from 0 on"
    if values.min() > 0 and values.max() > 20 * np.median(values):
        return "positive", "positive, and the largest far above the middle"
    return "regression", "numbers"


def _order(name: str) -> tuple[int, float, str]:
    try:
        return 0, cells.number(name), name
    except ValueError:
        return 1, 0.0, name
