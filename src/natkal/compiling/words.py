"""What names a program, and the trees of its arguments and results, as JSON; the same text for the same thing always.

Values are numbers, words, tuples and frozen dataclasses of these. Nodes of trees are JAX's own and those that natkal
registers: a named tuple, or a class that is itself the value it carries. Whatever else has no text.
"""

import dataclasses
import enum
import importlib
from typing import Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef, default_registry

PLAIN = (tuple, list, dict, type(None))


class NoWords(TypeError):
    """This is not made of words and numbers, or a text is not of these."""


def of_value(value: Any) -> Any:
    """A value as what JSON has."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) is tuple:
        return [of_value(part) for part in value]
    if isinstance(value, enum.Enum):
        return {"enum": [_name(type(value)), value.name]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and type(value).__hash__ is not None:
        fields = {field.name: of_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"class": _name(type(value)), "fields": fields}
    raise NoWords(f"{type(value).__qualname__} is not made of words and numbers")


def value_of(text: Any) -> Any:
    """The inverse of `of_value`; classes are natkal's own."""
    if isinstance(text, list):
        return tuple(value_of(part) for part in text)
    if not isinstance(text, dict):
        return text
    if "float" in text:
        return float.fromhex(text["float"])
    if "enum" in text:
        return _class(text["enum"][0])[text["enum"][1]]
    return _class(text["class"])(**{name: value_of(value) for name, value in text["fields"].items()})


def of_tree(structure: Any) -> Any:
    """A tree's structure as what JSON has; a leaf is 0."""
    found = structure.node_data()
    if found is None:
        return 0
    kind, data = found
    parts = [of_tree(child) for child in structure.children()]
    if kind in PLAIN:
        return [kind.__name__, parts] if data is None else [kind.__name__, parts, list(data)]
    if issubclass(kind, tuple):
        return [_name(kind), parts]
    if parts or type(data) is not kind:
        raise NoWords(f"{kind.__qualname__}: a node with both parts and data")
    return [_name(kind), [], of_value(data)]


def tree_of(text: Any) -> Any:
    """The inverse of `of_tree`."""
    if text == 0:
        return jax.tree.structure(0)
    name, parts, *rest = text
    children = [tree_of(part) for part in parts]
    kind = next((plain for plain in PLAIN if plain.__name__ == name), None)
    if kind is None:
        kind = _class(name)
        data: Any = value_of(rest[0]) if rest else kind
    else:
        data = rest[0] if rest else None
    return PyTreeDef.from_node_data_and_children(default_registry, (kind, data), children)


def _name(kind: type) -> str:
    if not kind.__module__.startswith("natkal.") or "<" in kind.__qualname__:
        raise NoWords(f"{kind.__module__}.{kind.__qualname__} is not a class of natkal's")
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> Any:
    module, _, kind = name.partition(":")
    if not module.startswith("natkal."):
        raise NoWords(f"{name} is not a class of natkal's")
    found = importlib.import_module(module)
    for part in kind.split("."):
        found = getattr(found, part)
    return found
