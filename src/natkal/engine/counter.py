"""A step counter that stays exact past 2^24 (float32) and 2^31 (int32), with or without 64-bit types."""

from typing import NamedTuple

import jax.numpy as jnp

from natkal.typing import Array, Int


class Counter(NamedTuple):
    """`high * 2^32 + low`, both unsigned 32-bit."""

    high: Int[Array, ""]
    low: Int[Array, ""]

    def __int__(self) -> int:
        return (int(self.high) << 32) + int(self.low)


def zero() -> Counter:
    """No step taken."""
    return Counter(high=jnp.zeros((), jnp.uint32), low=jnp.zeros((), jnp.uint32))


def increment(counter: Counter) -> Counter:
    """One more step."""
    low = counter.low + jnp.uint32(1)
    return Counter(high=counter.high + (low == 0).astype(jnp.uint32), low=low)


def value(counter: Counter, dtype: jnp.dtype) -> Array:
    """The count as a floating-point number, for schedules."""
    return counter.high.astype(dtype) * 2.0**32 + counter.low.astype(dtype)
