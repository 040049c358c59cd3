"""P corrected at once: best while it stays in the cache."""

import dataclasses

import jax.numpy as jnp

from natkal.curvature.kernels.base import Advanced, Learned
from natkal.curvature.limits import holds
from natkal.typing import Array, Float

FEW = 6
"""So many rows are written out, so that the correction is one pass over P with no second matrix."""


@dataclasses.dataclass(frozen=True)
class Immediate:
    """The store is P itself."""

    name: str = "immediate"

    def start(self, cov: Float[Array, " p"] | Float[Array, "p p"], limit: Float[Array, ""]) -> Float[Array, "p p"]:
        """P as it is."""
        return jnp.diag(cov) if cov.ndim == 1 else cov

    def settle(self, store: Float[Array, "p p"], room: int) -> Float[Array, "p p"]:
        """Nothing ever waits."""
        return store

    def multiply(self, store: Float[Array, "p p"], rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows P: few rows one by one, each a product that runs at the speed of memory."""
        if len(rows) > FEW:
            return (store @ rows.T).T
        return jnp.stack([store @ row for row in rows])

    def advance(self, store: Float[Array, "p p"], rows: Float[Array, "m p"]) -> Advanced:
        """P as it is, and the products."""
        images = self.multiply(store, rows)
        return Advanced(store=store, images=images, gram=images @ rows.T)

    def learn(
        self,
        store: Float[Array, "p p"],
        down: Float[Array, "r p"],
        keep: Float[Array, ""],
        held: Float[Array, " p"] | None = None,
    ) -> Learned:
        """P <- P / keep - down' down; one division, since p^2 of them would take longer than all the rest."""
        if len(down) > FEW:
            product = down.T @ down  # symmetric to rounding; what is not symmetric would grow by 1/keep at each step
            taken = (product + product.T) / 2
        else:
            taken = sum((row[:, None] * row[None] for row in down[1:]), down[0, :, None] * down[:1])
        kept = store if held is None else store * held[:, None] * held[None]
        return Learned(store=kept * (1 / keep) - taken, declined=store)

    def held(self, store: Float[Array, "p p"], limit: Float[Array, ""]) -> Float[Array, " p"]:
        """H from the variances as they are."""
        own = holds(store.reshape(-1)[:: len(store) + 1], limit)
        # A reduction is computed once; as anything less it would be computed again for every number of P.
        return jnp.min(jnp.stack([own, jnp.ones_like(own)]), axis=0)

    def to_dense(self, store: Float[Array, "p p"]) -> Float[Array, "p p"]:
        """P as stored."""
        return store
