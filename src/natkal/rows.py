"""Rows of parameter covectors, leaf by leaf, with the outer products of affine layers left unmultiplied."""

import dataclasses
import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp

from natkal.typing import Array, Bool, Float


@partial(jax.tree_util.register_dataclass, data_fields=["inputs", "deltas"], meta_fields=["axis"])
@dataclasses.dataclass(frozen=True)
class Outer:
    """m rows of one matrix of weights: row k is the outer product of `inputs` and `deltas[k]`, units along `axis`."""

    inputs: Float[Array, " n"]
    deltas: Float[Array, "m u"]
    axis: int

    def full(self) -> Float[Array, "m _ _"]:
        """Multiplied out, in the leaf's own shape."""
        if self.axis == 0:
            return self.deltas[:, :, None] * self.inputs[None, None, :]
        return self.inputs[None, :, None] * self.deltas[:, None, :]


@partial(jax.tree_util.register_dataclass, data_fields=["leaves"], meta_fields=["biases"])
@dataclasses.dataclass(frozen=True)
class FactoredRows:
    """m rows over all parameters: for each leaf `(m, *shape)`, or an `Outer`.

    `biases` pairs leaves (weight, bias) of one affine layer: the bias's rows are the deltas of the weight's.
    """

    leaves: tuple[Array | Outer, ...]
    biases: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        first = self.leaves[0]
        return len(first.deltas if isinstance(first, Outer) else first)

    @property
    def dtype(self) -> jnp.dtype:
        """The kind of number."""
        first = self.leaves[0]
        return first.deltas.dtype if isinstance(first, Outer) else first.dtype

    def leaf(self, index: int) -> Float[Array, "m size"]:
        """One leaf's columns, multiplied out."""
        own = self.leaves[index]
        return (own.full() if isinstance(own, Outer) else own).reshape(len(self), -1)

    def starts(self) -> dict[int, int]:
        """The leaf that begins at each column."""
        begin, at = {}, 0
        for index, own in enumerate(self.leaves):
            size = own.inputs.size * own.deltas.shape[1] if isinstance(own, Outer) else math.prod(own.shape[1:])
            if size:
                begin[at] = index
            at += size
        return begin

    def dense(self) -> Float[Array, "m p"]:
        """All columns, in `jax.tree` order."""
        return jnp.concatenate([self.leaf(index) for index in range(len(self.leaves))], axis=1)

    def __matmul__(self, vector: Float[Array, " p"]) -> Float[Array, " m"]:
        return self.dense() @ vector


Rows = Float[Array, "m p"] | FactoredRows


def reaches_every_leaf(rows: Rows, sizes: tuple[int, ...]) -> Bool[Array, ""]:
    """Whether no leaf of the parameters, of these sizes, has rows of zeros only: no unit between it and y is dead."""
    if isinstance(rows, FactoredRows):
        reached = [
            jnp.any(leaf.inputs != 0) & jnp.any(leaf.deltas != 0) if isinstance(leaf, Outer) else jnp.any(leaf != 0)
            for leaf in rows.leaves
        ]
        return jnp.all(jnp.stack([own for own, size in zip(reached, sizes, strict=True) if size]))
    ends = list(itertools.accumulate(sizes))
    return jnp.all(
        jnp.stack([jnp.any(rows[:, end - size : end] != 0) for end, size in zip(ends, sizes, strict=True) if size])
    )


def dense_rows(rows: Rows) -> Float[Array, "m p"]:
    """Rows as one matrix."""
    return rows.dense() if isinstance(rows, FactoredRows) else rows
