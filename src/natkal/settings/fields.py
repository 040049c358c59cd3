"""An option, said once: its default, what help says of it, what it may be. Every door is made from these fields."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from natkal.errors import StreamError

T = TypeVar("T")
DATA, KAFKA, MODEL, RUN, OUTPUT = "Data and target", "Kafka", "Model and learning", "Run", "Output"
"""The groups of options in `--help`."""


@dataclasses.dataclass(frozen=True)
class Option:
    """What is known of an option beside the name, type and default of its field.

    `metavar` stands behind one that takes a value, the type where it is None. `spelling`: that of a flag. `name`:
    where the doors call it other than the field. `after`: the option behind which it stands, where that is of another
    class. `shown`: whether help shows the default. `many`: it may be given several times. `formats`: it names an
    output, in one of these formats. `read`: what Python may give, as the field has it. `check`: raises `ValueError`.
    """

    help: str
    metavar: str | None
    panel: str | None
    spelling: tuple[str, ...] = ()
    name: str = ""
    after: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    shown: bool = True
    many: bool = False
    formats: tuple[str, ...] = ()
    read: Callable[[Any], Any] | None = None
    check: Callable[[Any], None] | None = None


@dataclasses.dataclass(frozen=True)
class Named:
    """A field that is an option: what the doors call it, and all that is known of it."""

    owner: type
    name: str
    field: str
    type: Any
    default: Any
    option: Option


def option(default: Any, metavar: str | None, help: str, *, panel: str | None = None, **known: Any) -> Any:
    """A field of a dataclass of options."""
    return dataclasses.field(default=default, metadata={"option": Option(help, metavar, panel, **known)})


def options_of(*owners: type) -> list[Named]:
    """The options of these dataclasses, in the order of `--help`."""
    every = [
        Named(owner, known.name or field.name, field.name, field.type, field.default, known)
        for owner in owners
        for field in dataclasses.fields(owner)
        if (known := field.metadata.get("option")) is not None
    ]
    found = [one for one in every if not one.option.after]
    for one in every:
        if one.option.after:
            there = [other.name for other in found]
            found.insert(there.index(one.option.after) + 1 if one.option.after in there else len(found), one)
    return found


def taken(owner: type[T], given: Mapping[str, Any]) -> T:
    """The dataclass of options from what a door was given, by the names that doors use; checked."""
    values = {}
    for one in options_of(owner):
        if one.name in given:
            values[one.field] = _read(one, given[one.name])
    made = owner(**values)
    check_fields(made)
    return made


def _read(one: Named, value: Any) -> Any:
    """What a door was given, as the field has it: a whole number of any library as Python's."""
    if value is None or one.option.read is not None:
        return None if value is None else one.option.read(value)  # pyright: ignore[reportOptionalCall]
    return value.__index__() if hasattr(value, "__index__") and not isinstance(value, bool) else value


def check_fields(options: Any) -> None:
    """Refuse a value that its field cannot have, in one sentence that names the option."""
    for one in options_of(type(options)):
        value, known = getattr(options, one.field), one.option
        if value is None and (one.default is None or type(None) in get_args(one.type)):
            continue
        for sentence in _wrong(one, value, known):
            raise StreamError(f"--{one.name.replace('_', '-')}: {sentence}, got {value!r}")


def _wrong(one: Named, value: Any, known: Option) -> Iterator[str]:
    if known.choices and value not in known.choices:
        yield f"must be one of {', '.join(known.choices)}"
    if known.least is not None or known.most is not None:
        whole = int in (one.type, *get_args(one.type))
        low, high = -float("inf") if known.least is None else known.least, known.most or float("inf")
        fits = isinstance(value, int) if whole else isinstance(value, int | float)
        if not fits or isinstance(value, bool) or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            yield f"must be {kind}, " + (f"{low:,g} or more" if known.most is None else f"{low:g} to {high:,g}")
    if known.check is not None:
        try:
            known.check(value)
        except ValueError as error:
            yield str(error)


def names(given: Any) -> tuple[str, ...]:
    """A name, or several, as a tuple."""
    return (given,) if isinstance(given, str) else tuple(str(name) for name in given)
