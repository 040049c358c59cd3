"""Classes that are known later: before its first row a class has the probability that the rows without it leave it.

Outputs are log-odds against the first class. An output whose class comes after n labelled rows has -log n added to it,
for ever; the classes known before any row have nothing added. With a model for each key, n counts the key's own rows.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from natkal.typing import Array, Bool, Float, Int

UNKNOWN = -1e9
"""What is added to the log-odds of a class that is not known yet."""


class LateClasses(NamedTuple):
    """How many classes are known, the labelled rows so far, and what is added to each output."""

    known: Int[Array, ""]
    rows: Float[Array, ""]
    offsets: Float[Array, " k"]


def start(outputs: int, dtype: Any) -> LateClasses:
    """No class is known."""
    return LateClasses(jnp.zeros((), jnp.int32), jnp.zeros((), dtype), jnp.full(outputs, UNKNOWN, dtype))


def arrived(late: LateClasses, known: Int[Array, ""]) -> LateClasses:
    """So many classes are known from this row on."""
    classes = jnp.arange(1, len(late.offsets) + 1)
    new = (classes >= late.known) & (classes < known)
    offsets = jnp.where(new, -jnp.log(jnp.maximum(late.rows, 1.0)), late.offsets)
    return late._replace(known=jnp.maximum(late.known, known).astype(jnp.int32), offsets=offsets)


def counted(late: LateClasses, labelled: Bool[Array, ""]) -> LateClasses:
    """One more row."""
    return late._replace(rows=late.rows + labelled)


def with_offsets(outputs: Float[Array, " k"], offsets: Array) -> Float[Array, " k"]:
    """Outputs with what is added to them; constant where the class is not known. `offsets` may be a single 0."""
    added = offsets.astype(outputs.dtype)
    return jnp.where(added > UNKNOWN, outputs + added, UNKNOWN)
