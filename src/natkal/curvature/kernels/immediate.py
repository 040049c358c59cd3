"""P corrected at once: best while it stays in the cache."""

import dataclasses

import jax.numpy as jnp

from natkal.curvature.kernels.base import Advanced, Learned
from natkal.typing import Array, Float

FEW = 6
"""So many rows are written out, so that the correction is one pass over P with no second matrix."""


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
            taken = down.T @ down
        else:
            taken = sum((row[:, None] * row[None] for row in down[1:]), down[0, :, None] * down[:1])
        kept = store if held is None else store * held[:, None] * held[None]
        return Learned(store=kept * (1 / keep) - taken, declined=store)

    def held(self, store: Float[Array, "p p"], keep: Float[Array, ""], largest: Float[Array, ""]) -> Float[Array, " p"]:
        """H for P <- H P H / keep: 1, and sqrt(keep) where a variance has been blown up far beyond the prior's largest.

        What no observation tells of, forgetting multiplies by 1/keep at every step, until it overflows. From
        1/sqrt(eps) times the prior's largest variance on, a parameter is not forgotten any more.
        """
        variances = store.reshape(-1)[:: len(store) + 1]
        free = jnp.where(variances > largest * jnp.finfo(store.dtype).eps ** -0.5, jnp.sqrt(keep), 1.0)
        # A reduction is computed once; as anything less it would be computed again for every number of P.
        return jnp.min(jnp.stack([free, jnp.ones_like(free)]), axis=0)

    def to_dense(self, store: Float[Array, "p p"]) -> Float[Array, "p p"]:
        """P as stored."""
        return store
