"""Outliers: an observation far outside what was expected counts for less, unless such observations keep coming."""

import dataclasses

import jax.numpy as jnp

from natkal.typing import Array, Float, Int


@dataclasses.dataclass(frozen=True)
class Robust:
    """A weighted-likelihood update; build it with `robust`."""

    threshold: float
    release: int

    def weigh(self, surprise: Float[Array, ""], outliers: Int[Array, ""]) -> tuple[Float[Array, ""], Int[Array, ""]]:
        """The weight of log p, min(1, threshold^2 / surprise), and how many outliers have now come in a row."""
        limit = self.threshold**2
        row = jnp.where(surprise > limit, outliers + 1, 0)
        weight = jnp.where(row > self.release, 1.0, jnp.minimum(1.0, limit / jnp.maximum(surprise, limit)))
        return weight.astype(surprise.dtype), row.astype(outliers.dtype)


def robust(*, threshold: float = 5.0, release: int = 5) -> Robust:
    """Down-weight observations more than `threshold` predictive standard deviations away.

    The weight falls like 1 / distance^2, so that the pull of an outlier vanishes with its distance. After `release` of
    them in a row the world is taken to have changed, and they count in full until one is expected again.
    """
    if not threshold > 0:
        raise ValueError(f"threshold: must be positive, got {threshold}")
    if release < 1:
        raise ValueError(f"release: must be at least 1, got {release}")
    return Robust(threshold=threshold, release=release)


def surprise(score: Float[Array, " k"], factor: Float[Array, "k r"], gram: Float[Array, "k k"]) -> Float[Array, ""]:
    """The normalised innovation squared per dimension, s' (F + F G F)^+ s / rank: about 1 where all is as expected."""
    fisher = factor @ factor.T
    values, vectors = jnp.linalg.eigh(fisher + fisher @ gram @ fisher)
    kept = values > jnp.finfo(values.dtype).eps * len(values) * jnp.max(values)
    along = jnp.square(vectors.T @ score) / jnp.where(kept, values, 1.0)
    return jnp.sum(jnp.where(kept, along, 0.0)) / jnp.maximum(jnp.sum(kept), 1)
