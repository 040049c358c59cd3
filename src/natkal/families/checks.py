"""What constructors and `in_domain` check, on the host, wherever the value is known."""

import numbers

import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike


def is_concrete(value: ArrayLike) -> bool:
    """Whether the value is known now; a tracer (under `jit` or `vmap`) is not, and is taken on trust."""
    return not isinstance(value, Tracer)


def check_positive(name: str, value: ArrayLike) -> None:
    """Raise a `ValueError` unless this is one positive finite number, or a tracer of shape ()."""
    if np.shape(value) != ():
        raise ValueError(f"{name}: must be one number, got shape {np.shape(value)}")
    if is_concrete(value) and not 0 < float(np.asarray(value)) < np.inf:
        raise ValueError(f"{name}: must be positive and finite, got {value}")


def check_whole(name: str, value: int, least: int) -> None:
    """Raise a `ValueError` unless this is a Python or NumPy integer of at least `least`."""
    if not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name}: must be a whole number of at least {least}, got {value!r}")


def are_counts(targets: np.ndarray) -> np.ndarray:
    """Entry by entry: a finite whole number, at least 0."""
    values = np.asarray(targets, dtype=np.float64)
    return np.isfinite(values) & (values >= 0) & (values == np.floor(values))
