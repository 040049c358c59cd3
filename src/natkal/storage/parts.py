"""What survives a restart: each class says what it keeps, and checks what it gets back before it uses it.

A part has an entry of JSON under its own name, and the arrays whose names begin with it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

F8 = np.dtype("<f8")
Template = Mapping[str, tuple[tuple[int | None, ...], np.dtype]]
"""Name, shape and dtype of arrays; None is any length."""


class Stored(NamedTuple):
    """What a part keeps: JSON, and arrays by what follows the part's name."""

    fields: Any
    arrays: Mapping[str, np.ndarray] = {}

    def check(self, template: Template) -> None:
        """Refuse arrays that are not exactly those of the template."""
        if set(self.arrays) != set(template):
            raise ValueError(f"its arrays {sorted(self.arrays)[:4]} are not {sorted(template)[:4]}")
        for name, (shape, dtype) in template.items():
            array = self.arrays[name]
            fits = len(array.shape) == len(shape) and all(
                n is None or n == m for n, m in zip(shape, array.shape, strict=True)
            )
            if not fits or array.dtype != dtype:
                raise ValueError(f"array {name!r} is {array.dtype} {array.shape}, not {dtype} {shape}")


@runtime_checkable
class StoredPart(Protocol):
    """Something whose state survives a restart."""

    def stored(self) -> Stored:
        """What it keeps."""
        ...

    def restore(self, kept: Stored) -> None:
        """The inverse, on an object made as that one was; a `ValueError` says what does not fit."""
        ...


class Field:
    """An attribute as a part: as JSON, by `write` where it is not that already, and back by `read`, which checks it."""

    def __init__(self, owner: Any, name: str, read: Callable[[Any], Any], write: Callable[[Any], Any] | None = None):
        self._owner, self._name, self._read, self._write = owner, name, read, write

    def stored(self) -> Stored:
        """The attribute."""
        value = getattr(self._owner, self._name)
        return Stored(value if self._write is None else self._write(value))

    def restore(self, kept: Stored) -> None:
        """Set it."""
        kept.check({})
        setattr(self._owner, self._name, self._read(kept.fields))


class Numbers:
    """An array as a part, of the dtype that it has."""

    def __init__(self, owner: Any, name: str, shape: tuple[int | None, ...]):
        self._owner, self._name, self._shape = owner, name, shape

    def stored(self) -> Stored:
        """The array."""
        return Stored(None, {"": getattr(self._owner, self._name)})

    def restore(self, kept: Stored) -> None:
        """Set it."""
        kept.check({"": (self._shape, getattr(self._owner, self._name).dtype)})
        setattr(self._owner, self._name, kept.arrays[""].copy())


class StoredParts:
    """A base of what is made of parts, and is one."""

    def stored_parts(self) -> dict[str, StoredPart]:
        """The parts by name, in the order of restoring."""
        raise NotImplementedError

    def stored(self) -> Stored:
        """All parts."""
        header: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for name, part in self.stored_parts().items():
            fields, own = part.stored()
            header |= {} if fields is None else {name: fields}
            arrays |= {f".{name}{rest}": array for rest, array in own.items()}
        return Stored(header, arrays)

    def restore(self, kept: Stored) -> None:
        """The inverse of `stored`; every array belongs to one of the parts."""
        parts = self.stored_parts()
        own: dict[str, dict[str, np.ndarray]] = {name: {} for name in parts}
        for key, array in kept.arrays.items():
            name = re.split(r"[.\[]", key)[1]
            own[name][key[1 + len(name) :]] = array
        for name in parts:  # asked for again: one part may say how large the next is
            self.stored_parts()[name].restore(Stored(kept.fields.get(name), own[name]))


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def whole(value: Any) -> int:
    """A count."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def each(check: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """A list of what `check` takes."""

    def read(values: Any) -> list[Any]:
        if not isinstance(values, list):
            raise ValueError(f"{values!r} is not a list")
        return [check(value) for value in values]

    return read


def by_name(check: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """An object whose values are what `check` takes."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is not an object")
        return {text(name): check(entry) for name, entry in value.items()}

    return read
