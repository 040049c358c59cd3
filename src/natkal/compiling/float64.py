"""Where float64 is turned on for tables, files, servers and estimators: the user's own setting stays as it is."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def float64(function: Callable[P, R]) -> Callable[P, R]:
    """The function with 64-bit numbers, whatever the user's JAX is set to."""

    @functools.wraps(function)
    def wide(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wide
