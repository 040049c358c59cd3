"""P = scale (C - U'U): corrections wait as rows of U and are folded into C together, so that a step only reads C."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from natkal.curvature.kernels.base import Advanced, Learned
from natkal.curvature.limits import holds
from natkal.typing import Array, Bool, Float, Int

LARGEST_SCALE = 1e3
"""Fold before forgetting has taken so much that C and P differ by more."""


class Waiting(NamedTuple):
    """`base` is C in the layout's own form; the first `used` of `rows` are U, what lies below is finite and void.

    No variance stays above `limit` when C is folded.
    """

    base: Any
    rows: Float[Array, "b p"]
    used: Int[Array, ""]
    scale: Float[Array, ""]
    limit: Float[Array, ""]


@runtime_checkable
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

    def fold(
        self,
        base: Any,
        rows: Float[Array, "b p"],
        count: Int[Array, ""],
        scale: Float[Array, ""],
        limit: Float[Array, ""],
    ) -> Any:
        """C <- H scale (C - U'U) H in place, U the first `count` rows, H from `limits.py`; nothing where count is 0."""
        ...


@dataclasses.dataclass(frozen=True)
class Deferred:
    """Up to `capacity` rows wait."""

    name: str
    layout: Layout
    capacity: int

    def start(self, cov: Float[Array, " p"] | Float[Array, "p p"], limit: Float[Array, ""]) -> Waiting:
        """C = cov, nothing waits."""
        return Waiting(
            base=self.layout.pack(cov),
            rows=jnp.zeros((self.capacity, len(cov)), cov.dtype),
            used=jnp.zeros((), jnp.int32),
            scale=jnp.ones((), cov.dtype),
            limit=limit,
        )

    def held(self, store: Waiting, limit: Float[Array, ""]) -> None:
        """None: variances are held when C is folded."""

    def settle(self, store: Waiting, room: int) -> Waiting:
        """Fold what waits where fewer than `room` rows are free, or where C and P have grown too far apart."""
        due = self.due(store, room)
        base = self.layout.fold(store.base, store.rows, jnp.where(due, store.used, 0), store.scale, store.limit)
        return folded(store, base, due)

    def multiply(self, store: Waiting, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Scale (rows C - (rows U') U)."""
        shares = jnp.where(in_use(store.used, self.capacity), store.rows @ rows.T, 0.0)
        return store.scale * (self.layout.multiply(store.base, rows) - shares.T @ store.rows)

    def advance(self, store: Waiting, rows: Float[Array, "m p"]) -> Advanced:
        """Fold if it is time to, then multiply."""
        settled = self.settle(store, len(rows))
        images = self.multiply(settled, rows)
        return Advanced(store=settled, images=images, gram=images @ rows.T)

    def due(self, store: Waiting, room: int) -> Bool[Array, ""]:
        """Whether what waits is to be folded before `room` rows come."""
        return (store.used + min(room, self.capacity) > self.capacity) | (store.scale > LARGEST_SCALE)

    def learn(
        self, store: Waiting, down: Float[Array, "r p"], keep: Float[Array, ""], held: Float[Array, " p"] | None = None
    ) -> Learned:
        """Let `down` wait; what exceeds the capacity is folded on the way.

        An observation that is turned down leaves its rows where they are and the count as it was.
        """
        learned = self._wait(store._replace(scale=store.scale / keep), down[: self.capacity])
        if len(down) <= self.capacity:
            return Learned(store=learned, declined=store._replace(rows=learned.rows))
        for first in range(self.capacity, len(down), self.capacity):
            part = down[first : first + self.capacity]
            learned = self._wait(self.settle(learned, len(part)), part)
        return Learned(store=learned, declined=store)

    def to_dense(self, store: Waiting) -> Float[Array, "p p"]:
        """P, multiplied out."""
        base = self.layout.unpack(store.base, store.rows.shape[1])
        waiting = jnp.where(in_use(store.used, self.capacity), store.rows, 0.0)
        return store.scale * (base - waiting.T @ waiting)

    def _wait(self, store: Waiting, down: Float[Array, "r p"]) -> Waiting:
        finite = jnp.where(jnp.isfinite(down), down, 0.0) / jnp.sqrt(store.scale)
        rows = jax.lax.dynamic_update_slice(store.rows, finite, (store.used, jnp.zeros((), jnp.int32)))
        return store._replace(rows=rows, used=store.used + len(down))


def folded(store: Waiting, base: Any, due: Bool[Array, ""]) -> Waiting:
    """The store around C as `fold` left it."""
    return store._replace(base=base, used=jnp.where(due, 0, store.used), scale=jnp.where(due, 1.0, store.scale))


def folded_variances(
    diagonal: Float[Array, " p"], rows: Float[Array, "b p"], count: Int[Array, ""], scale: Float[Array, ""]
) -> Float[Array, " p"]:
    """The diagonal of scale (C - U'U), from that of C."""
    return scale * (diagonal - jnp.sum(jnp.where(in_use(count, len(rows)), jnp.square(rows), 0.0), axis=0))


def own_slice(vector: Float[Array, " p"], part: Float[Array, "s p"], first: Int[Array, ""]) -> Float[Array, "s 1"]:
    """The numbers of a vector that stand for these rows of a matrix, as a column."""
    return jax.lax.dynamic_slice_in_dim(vector, first, len(part))[:, None]


def in_use(count: Int[Array, ""], capacity: int) -> Bool[Array, "b 1"]:
    """Which rows hold something that waits."""
    return jnp.arange(capacity)[:, None] < count


@dataclasses.dataclass(frozen=True)
class Full:
    """C as a p x p matrix, in plain JAX; `stripe` rows of it are folded at once; `precision` is float32's."""

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
        return self._product(base, rows.T).T

    def fold(
        self,
        base: Float[Array, "p p"],
        rows: Float[Array, "b p"],
        count: Int[Array, ""],
        scale: Float[Array, ""],
        limit: Float[Array, ""],
    ) -> Float[Array, "p p"]:
        """C <- H scale (C - U'U) H, all its rows."""
        # H is an argument of the loop that writes C, so that C is read for it before and not copied.
        own = holds(folded_variances(base.reshape(-1)[:: len(base) + 1], rows, count, scale), limit)
        return self.fold_rows(
            base, rows, rows, count, scale, lambda part, first: part * own_slice(own, part, first) * own[None, :]
        )

    def fold_rows(
        self,
        base: Float[Array, "h p"],
        left: Float[Array, "b h"],
        rows: Float[Array, "b p"],
        count: Int[Array, ""],
        scale: Float[Array, ""],
        finish: Callable[[Float[Array, "s p"], Int[Array, ""]], Float[Array, "s p"]],
    ) -> Float[Array, "h p"]:
        """Some rows of C, where `left` holds their columns of U; `finish(rows, first)` bounds the rows from `first` on.

        A loop over stripes, of no turns where nothing waits: unlike a branch it works in place, with no second matrix.
        The last stripe is moved up to end with the matrix; rows that an earlier one has done stay as they are.
        """
        size = base.shape[0]
        height = min(self.stripe, -(-size // 2))
        stripes = -(-size // height)

        def stripe(turn: Int[Array, ""], base: Float[Array, "h p"]) -> Float[Array, "h p"]:
            first = jnp.minimum(turn * height, size - height)
            old = jax.lax.dynamic_slice_in_dim(base, first, height)
            columns = jax.lax.dynamic_slice_in_dim(left, first, height, axis=1)
            waiting = jnp.where(in_use(count, len(rows)), columns, 0.0)
            folded = finish(scale * (old - self._product(waiting.T, rows)), first)
            fresh = first + jnp.arange(height) >= turn * height
            return jax.lax.dynamic_update_slice_in_dim(base, jnp.where(fresh[:, None], folded, old), first, axis=0)

        return jax.lax.fori_loop(0, jnp.where(count > 0, stripes, 0), stripe, base)

    def _product(self, left: Float[Array, "h b"], right: Float[Array, "b p"]) -> Float[Array, "h p"]:
        return jnp.matmul(left, right, precision=self.precision if left.dtype == jnp.float32 else None)
