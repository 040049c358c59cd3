"""natkal: learning from a stream, one observation at a time; online natural gradient as a Kalman filter.

Names are imported on first use, so that `import natkal` costs nothing and the command line answers without JAX. The
stub `__init__.pyi` says them once, for this module and for type checkers.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_HOME = {
    name: home
    for home, name in re.findall(r"^from (\S+) import (\w+)", Path(__file__).with_suffix(".pyi").read_text(), re.M)
}

__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name from its home the first time it is asked for, and keep it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_module(f"natkal.{name}") if home == "natkal" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, imported yet or not."""
    return sorted({*globals(), *_HOME})
