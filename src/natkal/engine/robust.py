"""Outliers: an observation far outside what was expected counts for less, unless such observations keep coming."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal import linalg
from natkal.typing import Array, Float, Int

TYPICAL_ROWS = 200.0
"""Over how many rows the usual surprise is averaged."""
LARGEST_SHARE = 4.0
"""No observation counts for more than this multiple of the usual surprise in that average."""


class Outliers(NamedTuple):
    """How many outliers have come in a row, and the usual surprise of the others with the rows it was taken over."""

    in_a_row: Int[Array, ""]
    typical: Float[Array, ""]
    rows: Float[Array, ""]


def no_outliers(dtype: Any) -> Outliers:
    """Before any observation: a surprise of 1 is usual where the law is right."""
    return Outliers(jnp.zeros((), jnp.int32), jnp.ones((), dtype), jnp.ones((), dtype))


@dataclasses.dataclass(frozen=True)
class Robust:
    """A weighted-likelihood update; build it with `robust`."""

    threshold: float
    release: int
    adaptive: bool

    def weigh(self, surprise: Float[Array, ""], before: Outliers) -> tuple[Float[Array, ""], Outliers]:
        """The weight of log p, min(1, threshold^2 / surprise), and the outliers with this observation."""
        usual = before.typical if self.adaptive else jnp.ones_like(before.typical)
        limit = self.threshold**2 * usual
        in_a_row = jnp.where(surprise > limit, before.in_a_row + 1, 0)
        weight = jnp.minimum(1.0, limit / jnp.maximum(surprise, limit))
        weight = jnp.where(in_a_row > self.release, 1.0, weight)
        rows = jnp.minimum(before.rows + 1, TYPICAL_ROWS)
        counted = jnp.where(in_a_row > self.release, surprise, jnp.minimum(surprise, LARGEST_SHARE * before.typical))
        after = Outliers(in_a_row, before.typical + (counted - before.typical) / rows, rows)
        known = jnp.isfinite(surprise)
        return jnp.where(known, weight, 1.0).astype(surprise.dtype), jax.tree.map(
            lambda new, old: jnp.where(known, new, old).astype(old.dtype), after, before
        )


def robust(*, threshold: float = 5.0, release: int = 5, adaptive: bool = False) -> Robust:
    """Down-weight observations more than `threshold` predictive standard deviations away.

    The weight falls like 1 / distance^2, so that the pull of an outlier vanishes with its distance. After `release` of
    them in a row the world is taken to have changed, and they count in full until one is expected again. `adaptive`
    measures distances by the usual one of the last rows instead of the model's own noise: for models in units of a
    noise that is not known.
    """
    if not threshold > 0:
        raise ValueError(f"threshold: must be positive, got {threshold}")
    if release < 1:
        raise ValueError(f"release: must be at least 1, got {release}")
    return Robust(threshold=threshold, release=release, adaptive=adaptive)


def surprise(score: Float[Array, " k"], factor: Float[Array, "k r"], gram: Float[Array, "k k"]) -> Float[Array, ""]:
    """The normalised innovation squared per dimension, s' M^+ s / rank with M = F + F G F: about 1 where all is well.

    Taken as s' (M + d I)^-1 s, d a hundred times the rounding of M: s has no part in M's null space, so d hardly counts
    there. The rank is the whole number next to sum_i m_i / (m_i + d) = k - d tr (M + d I)^-1, m_i the eigenvalues.
    """
    fisher = factor @ factor.T
    if len(fisher) == 1:
        variance = fisher[0, 0] + fisher[0, 0] * gram[0, 0] * fisher[0, 0]
        return jnp.where(variance > 0, jnp.square(score[0]) / jnp.where(variance > 0, variance, 1.0), 0.0)
    size = len(score)
    spread = fisher + fisher @ gram @ fisher
    info = jnp.finfo(spread.dtype)
    floor = jnp.maximum(100 * size * info.eps * jnp.max(jnp.diagonal(spread)), info.tiny)
    identity = jnp.eye(size, dtype=spread.dtype)
    root = linalg.cholesky(spread + floor * identity)
    rank = jnp.round(size - floor * jnp.sum(jnp.square(root.whiten(identity))))
    return jnp.sum(jnp.square(root.whiten(score))) / jnp.maximum(rank, 1.0)
