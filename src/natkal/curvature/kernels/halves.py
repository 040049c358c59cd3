"""Float32 as two halves of 11 bits, v = high + low / 2048, for the matrix units of a GPU.

    (a + b/2048) (c + d/2048) = ac + (ad + bc) / 2048 + ...       what is left out is 2^-22 of the product

Three products of float16 at twice the rate of TF32's, which has 11 bits as well. The low halves are scaled up and added
up apart, so that numbers down to 2^-29 of the largest keep all 22 bits; smaller ones lose bits as in any fixed scale.
Other dtypes are one part, multiplied as they are.
"""

import jax
import jax.numpy as jnp

from natkal.typing import Array, Float

LOW = 2048.0
TOP = 15
"""The largest number is scaled below 2^15: float16 ends at 65504."""


def power_below(largest: Float[Array, "..."]) -> Float[Array, "..."]:
    """The power of two that takes `largest` to between 2^14 and 2^15; one for what is zero or not finite."""
    _, exponent = jnp.frexp(largest)
    power = jnp.exp2(jnp.clip(TOP - exponent, -120, 100).astype(largest.dtype))
    return jnp.where((largest > 0) & jnp.isfinite(largest), power, 1.0)


def split(values: Float[Array, "..."]) -> Array:
    """The parts of scaled numbers, stacked.

    Rounding is asked for by name: XLA may take a conversion there and back as none.
    """
    if values.dtype != jnp.float32:
        return values[None]
    high = jax.lax.reduce_precision(values, exponent_bits=5, mantissa_bits=10)
    return jnp.stack([high.astype(jnp.float16), (LOW * (values - high)).astype(jnp.float16)])


def split_piece(values: Array) -> tuple[Array, ...]:
    """The same inside a program."""
    if values.dtype != jnp.float32:
        return (values,)
    high = values.astype(jnp.float16)
    return high, (LOW * (values - high.astype(jnp.float32))).astype(jnp.float16)


def product(left: tuple[Array, ...], right: tuple[Array, ...], axes: tuple[int, int]) -> Array:
    """The product of two split matrices over one axis of each, from zero.

    Matrix units cut off what they add up, they do not round: what lies behind this sum is added outside of them.
    """
    if len(left) == 1:
        return _dot(left[0], right[0], axes)
    low = _dot(left[0], right[1], axes) + _dot(left[1], right[0], axes)
    return _dot(left[0], right[0], axes) + low * (1.0 / LOW)


def _dot(left: Array, right: Array, axes: tuple[int, int]) -> Array:
    narrow = left.dtype == jnp.float16
    return jax.lax.dot_general(
        left,
        right,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=None if narrow else "highest",
        preferred_element_type=jnp.float32 if narrow else left.dtype,
    )
