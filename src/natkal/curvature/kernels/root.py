"""A root Z of P = Z Z' in memory: corrected at once, or as Z = scale (C - A'B) with rows of A and B that wait."""

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from natkal.curvature.kernels.base import Learned
from natkal.curvature.kernels.deferred import LARGEST_SCALE, Full, in_use
from natkal.curvature.limits import holds
from natkal.typing import Array, Float, Int


@runtime_checkable
class RootKernel(Protocol):
    """A root in memory: what `Kernel` is to a covariance."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    def start(self, root: Float[Array, "p p"], limit: Float[Array, ""]) -> Any:
        """A store that holds this Z; no variance is to stay above `limit`."""
        ...

    def held(self, store: Any, limit: Float[Array, ""]) -> Float[Array, " p"] | None:
        """The diagonal of H for Z <- H Z (`limits.py`); None where a kernel does this on its own time."""
        ...

    def settle(self, store: Any, room: int) -> Any:
        """The same Z, in the same memory, with room for corrections of `room` rows."""
        ...

    def forward(self, store: Any, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows Z, reading the store once."""
        ...

    def back(self, store: Any, shadows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Shadows Z', reading the store once."""
        ...

    def learn(
        self,
        store: Any,
        left: Float[Array, "r p"],
        right: Float[Array, "r p"],
        keep: Float[Array, ""],
        held: Float[Array, " p"] | None = None,
    ) -> Learned:
        """Z <- H Z / sqrt(keep) - left' right, where these rows fit in the room there is; H as `held` gave it."""
        ...

    def to_root(self, store: Any) -> Float[Array, "p p"]:
        """Z in full."""
        ...


@dataclasses.dataclass(frozen=True)
class ImmediateRoot:
    """The store is Z itself: best while it stays in the cache."""

    name: str = "immediate"

    def start(self, root: Float[Array, "p p"], limit: Float[Array, ""]) -> Float[Array, "p p"]:
        """Z as it is."""
        return root

    def held(self, store: Float[Array, "p p"], limit: Float[Array, ""]) -> Float[Array, " p"]:
        """H from the lengths of Z's rows."""
        return holds(jnp.sum(jnp.square(store), axis=1), limit)

    def settle(self, store: Float[Array, "p p"], room: int) -> Float[Array, "p p"]:
        """Nothing ever waits."""
        return store

    def forward(self, store: Float[Array, "p p"], rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows Z."""
        return rows @ store

    def back(self, store: Float[Array, "p p"], shadows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Shadows Z'."""
        return shadows @ store.T

    def learn(
        self,
        store: Float[Array, "p p"],
        left: Float[Array, "r p"],
        right: Float[Array, "r p"],
        keep: Float[Array, ""],
        held: Float[Array, " p"] | None = None,
    ) -> Learned:
        """Z <- H Z / sqrt(keep) - left' right."""
        kept = store if held is None else store * held[:, None]
        return Learned(store=kept / jnp.sqrt(keep) - left.T @ right, declined=store)

    def to_root(self, store: Float[Array, "p p"]) -> Float[Array, "p p"]:
        """Z as stored."""
        return store


class WaitingRoot(NamedTuple):
    """`base` is C; the first `used` rows of `left` and `right` are A and B, what lies below is finite and void."""

    base: Float[Array, "p p"]
    left: Float[Array, "b p"]
    right: Float[Array, "b p"]
    used: Int[Array, ""]
    scale: Float[Array, ""]
    limit: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class DeferredRoot:
    """Up to `capacity` rows wait: a step reads C twice, and C is written once in so many rows."""

    layout: Full
    capacity: int
    name: str = "deferred"

    def start(self, root: Float[Array, "p p"], limit: Float[Array, ""]) -> WaitingRoot:
        """C = root, nothing waits."""
        empty = jnp.zeros((self.capacity, len(root)), root.dtype)
        used, scale = jnp.zeros((), jnp.int32), jnp.ones((), root.dtype)
        return WaitingRoot(base=root, left=empty, right=empty, used=used, scale=scale, limit=limit)

    def held(self, store: WaitingRoot, limit: Float[Array, ""]) -> None:
        """None: variances are held when C is folded."""

    def settle(self, store: WaitingRoot, room: int) -> WaitingRoot:
        """Fold what waits where fewer than `room` rows are free, or where C and Z have grown too far apart."""
        due = (store.used + min(room, self.capacity) > self.capacity) | (store.scale > LARGEST_SCALE)
        count = jnp.where(due, store.used, 0)

        def bounded(rows: Float[Array, "s p"], first: Int[Array, ""]) -> Float[Array, "s p"]:
            return rows * holds(jnp.sum(jnp.square(rows), axis=1), store.limit)[:, None]

        return store._replace(
            base=self.layout.fold_rows(store.base, store.left, store.right, count, store.scale, bounded),
            used=jnp.where(due, 0, store.used),
            scale=jnp.where(due, 1.0, store.scale),
        )

    def forward(self, store: WaitingRoot, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Scale (rows C - (rows A') B)."""
        shares = jnp.where(in_use(store.used, self.capacity), store.left @ rows.T, 0.0)
        return store.scale * (rows @ store.base - shares.T @ store.right)

    def back(self, store: WaitingRoot, shadows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Scale (shadows C' - (shadows B') A)."""
        shares = jnp.where(in_use(store.used, self.capacity), store.right @ shadows.T, 0.0)
        return store.scale * (self.layout.multiply(store.base, shadows) - shares.T @ store.left)

    def learn(
        self,
        store: WaitingRoot,
        left: Float[Array, "r p"],
        right: Float[Array, "r p"],
        keep: Float[Array, ""],
        held: Float[Array, " p"] | None = None,
    ) -> Learned:
        """Let both wait; what exceeds the capacity is folded on the way.

        An observation that is turned down leaves its rows where they are and the count as it was.
        """
        forgot = store._replace(scale=store.scale / jnp.sqrt(keep))
        learned = self._wait(forgot, left[: self.capacity], right[: self.capacity])
        if len(left) <= self.capacity:
            return Learned(store=learned, declined=store._replace(left=learned.left, right=learned.right))
        for first in range(self.capacity, len(left), self.capacity):
            part = slice(first, first + self.capacity)
            learned = self._wait(self.settle(learned, len(left[part])), left[part], right[part])
        return Learned(store=learned, declined=store)

    def to_root(self, store: WaitingRoot) -> Float[Array, "p p"]:
        """Z, multiplied out."""
        waiting = jnp.where(in_use(store.used, self.capacity), store.left, 0.0)
        return store.scale * (store.base - waiting.T @ store.right)

    def _wait(self, store: WaitingRoot, left: Float[Array, "r p"], right: Float[Array, "r p"]) -> WaitingRoot:
        at = (store.used, jnp.zeros((), jnp.int32))
        both = [
            jax.lax.dynamic_update_slice(old, jnp.where(jnp.isfinite(new), new, 0.0) / jnp.sqrt(store.scale), at)
            for old, new in ((store.left, left), (store.right, right))
        ]
        return store._replace(left=both[0], right=both[1], used=store.used + len(left))
