"""What options of several commands have in common: their choices, their groups in `--help`, how their text is read."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import typer


class Task(StrEnum):
    """What a target is."""

    regression = "regression"
    binary = "binary"
    multiclass = "multiclass"
    counts = "count"
    positive = "positive"


class LearnerKind(StrEnum):
    """What learns."""

    auto = "auto"
    single = "single"


class Decimal(StrEnum):
    """The decimal sign of numbers written as text."""

    auto = "auto"
    point = "."
    comma = ","


class Missing(StrEnum):
    """What to do with a row in which a feature is missing."""

    impute = "impute"
    reject = "reject"


def in_panel(panel: str) -> Callable[..., Any]:
    """Options of one group of `--help`; `metavar` is what to write behind one that takes a value."""

    def option(metavar: str | None, text: str, *names: str, shown: bool = True, **checks: Any) -> Any:
        return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, show_default=shown, **checks)

    return option


def interval(text: str) -> tuple[int | None, float | None]:
    """Rows or seconds between checkpoints, whichever the text says."""
    try:
        if text.endswith("s"):
            seconds = float(text[:-1])
            if seconds > 0:
                return None, seconds
        elif int(text) > 0:
            return int(text), None
    except ValueError:
        pass
    raise typer.BadParameter(f"write rows (10000) or seconds (30s), got {text!r}", param_hint="--checkpoint-every")


def names(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
