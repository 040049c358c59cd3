"""P = scale (C - U'U): corrections wait as rows of U and are folded into C together, so that a step only reads C."""

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from natkal.typing import Array, Bool, Float, Int

LARGEST_SCALE = 1e3
"""Fold before forgetting has taken so much that C and P differ by more."""


class Waiting(NamedTuple):
    """`base` is C in the layout's own form, `rows` is U with `count` rows in use and zeros below."""

    base: Any
    rows: Float[Array, "b p"]
    count: Int[Array, ""]
    scale: Float[Array, ""]


class Layout(Protocol):
    """How C lies in memory, and the two passes over it."""

    def pack(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Any:
        """C from variances or a full matrix."""
        ...

    def unpack(self, base: Any, size: int) -> Float[Array, "p p"]:
        """C in full."""
        ...

    def multiply(self, base: Any, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows C."""
        ...

    def fold(self, base: Any, rows: Float[Array, "b p"], scale: Float[Array, ""], due: Bool[Array, ""]) -> Any:
        """C <- scale (C - U'U) where `due`, in place."""
        ...


@dataclasses.dataclass(frozen=True)
class Deferred:
    """Up to `capacity` rows wait."""

    name: str
    layout: Layout
    capacity: int

    def start(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Waiting:
        """C = cov, nothing waits."""
        return Waiting(
            base=self.layout.pack(cov),
            rows=jnp.zeros((self.capacity, len(cov)), cov.dtype),
            count=jnp.zeros((), jnp.int32),
            scale=jnp.ones((), cov.dtype),
        )

    def settle(self, store: Waiting, room: int) -> Waiting:
        """Fold what waits where fewer than `room` rows are free, or where C and P have grown too far apart."""
        due = (store.count + min(room, self.capacity) > self.capacity) | (store.scale > LARGEST_SCALE)
        return Waiting(
            base=self.layout.fold(store.base, store.rows, store.scale, due),
            rows=jnp.where(due, 0.0, store.rows),
            count=jnp.where(due, 0, store.count),
            scale=jnp.where(due, 1.0, store.scale),
        )

    def multiply(self, store: Waiting, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Scale (rows C - (rows U') U)."""
        waiting = (store.rows @ rows.T).T @ store.rows
        return store.scale * (self.layout.multiply(store.base, rows) - waiting)

    def learn(self, store: Waiting, down: Float[Array, "r p"], keep: Float[Array, ""]) -> Waiting:
        """Let `down` wait; what exceeds the capacity is folded on the way."""
        faded = store._replace(scale=store.scale / keep)
        learned = self._wait(faded, down[: self.capacity])
        for first in range(self.capacity, len(down), self.capacity):
            part = down[first : first + self.capacity]
            learned = self._wait(self.settle(learned, len(part)), part)
        return learned

    def to_dense(self, store: Waiting) -> Float[Array, "p p"]:
        """P, multiplied out."""
        base = self.layout.unpack(store.base, store.rows.shape[1])
        return store.scale * (base - store.rows.T @ store.rows)

    def _wait(self, store: Waiting, down: Float[Array, "r p"]) -> Waiting:
        rows = jax.lax.dynamic_update_slice(
            store.rows, down / jnp.sqrt(store.scale), (store.count, jnp.zeros((), jnp.int32))
        )
        return Waiting(base=store.base, rows=rows, count=store.count + len(down), scale=store.scale)


@dataclasses.dataclass(frozen=True)
class Full:
    """C as a p x p matrix, in plain JAX; `stripe` rows of it are folded at once."""

    precision: str | None = None
    stripe: int = 256

    def pack(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Float[Array, "p p"]:
        """C itself."""
        return jnp.diag(cov) if cov.ndim == 1 else cov

    def unpack(self, base: Float[Array, "p p"], size: int) -> Float[Array, "p p"]:
        """C itself."""
        return base

    def multiply(self, base: Float[Array, "p p"], rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows C, as (C rows')', which XLA streams better."""
        return jnp.matmul(base, rows.T, precision=self.precision).T

    def fold(
        self, base: Float[Array, "p p"], rows: Float[Array, "b p"], scale: Float[Array, ""], due: Bool[Array, ""]
    ) -> Float[Array, "p p"]:
        """C <- scale (C - U'U), all its rows."""
        return self.fold_rows(base, rows, rows, scale, due)

    def fold_rows(
        self,
        base: Float[Array, "h p"],
        left: Float[Array, "b h"],
        rows: Float[Array, "b p"],
        scale: Float[Array, ""],
        due: Bool[Array, ""],
    ) -> Float[Array, "h p"]:
        """Some rows of C, where `left` holds their columns of U.

        A loop over stripes, of no turns unless due: unlike a branch it works in place, with no second matrix. The last
        stripe is moved up to end with the matrix; rows that an earlier one has done stay as they are.
        """
        size = base.shape[0]
        height = min(self.stripe, -(-size // 2))
        count = -(-size // height)

        def stripe(turn: Int[Array, ""], base: Float[Array, "h p"]) -> Float[Array, "h p"]:
            first = jnp.minimum(turn * height, size - height)
            old = jax.lax.dynamic_slice_in_dim(base, first, height)
            columns = jax.lax.dynamic_slice_in_dim(left, first, height, axis=1)
            folded = scale * (old - jnp.matmul(columns.T, rows, precision=self.precision))
            fresh = first + jnp.arange(height) >= turn * height
            return jax.lax.dynamic_update_slice_in_dim(base, jnp.where(fresh[:, None], folded, old), first, axis=0)

        return jax.lax.fori_loop(0, jnp.where(due, count, 0), stripe, base)
