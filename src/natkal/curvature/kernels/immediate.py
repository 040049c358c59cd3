"""P corrected at once: best while it stays in the cache."""

import dataclasses

import jax.numpy as jnp

from natkal.curvature.kernels.base import Learned
from natkal.typing import Array, Float


@dataclasses.dataclass(frozen=True)
class Immediate:
    """The store is P itself."""

    name: str = "immediate"

    def start(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Float[Array, "p p"]:
        """P as it is."""
        return jnp.diag(cov) if cov.ndim == 1 else cov

    def settle(self, store: Float[Array, "p p"], room: int) -> Float[Array, "p p"]:
        """Nothing ever waits."""
        return store

    def multiply(self, store: Float[Array, "p p"], rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows P, as (P rows')', which is faster in a batch of small matrices."""
        return (store @ rows.T).T

    def learn(self, store: Float[Array, "p p"], down: Float[Array, "r p"], keep: Float[Array, ""]) -> Learned:
        """P <- P / keep - down' down."""
        return Learned(store=store / keep - down.T @ down, declined=store)

    def to_dense(self, store: Float[Array, "p p"]) -> Float[Array, "p p"]:
        """P as stored."""
        return store
