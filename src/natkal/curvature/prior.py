"""A prior that stays: which of its directions to renew at this step, and with how much weight."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior
from natkal.typing import Array, Float, Int


class KeptPrior(NamedTuple):
    """Lambda_0 = sum_i l_i l_i', and how much of each term the stored precision still lacks.

    `root` holds 1 / sd (p,) for a diagonal prior, or the rows l_i (p, p). `owed` is the weight of each direction that
    forgetting took away and that has not been given back; `turn` is the next direction to renew.
    """

    root: Float[Array, " p"] | Float[Array, "p p"]
    owed: Float[Array, " p"]
    turn: Int[Array, ""]


class Renewal(NamedTuple):
    """The prior directions whose turn it is, as rows of an observation with these weights."""

    rows: Float[Array, "b p"]
    weights: Float[Array, " b"]
    state: KeptPrior


def init(prior: Prior) -> KeptPrior | None:
    """Directions of Lambda_0 for a prior that is kept; None for one that is not."""
    if prior.kept is None:
        return None
    if prior.kept.ndim == 1:
        root = 1 / jnp.sqrt(prior.kept)
    else:
        # Lambda_0 = C^-T C^-1 with C C' = Sigma_0, so the rows of C^-1 are the directions l_i.
        lower = jnp.linalg.cholesky(prior.kept)
        root = jax.scipy.linalg.solve_triangular(lower, jnp.eye(len(lower), dtype=lower.dtype), lower=True)
    return KeptPrior(root=root, owed=jnp.zeros(len(root), root.dtype), turn=jnp.zeros((), jnp.int32))


def renew(kept: KeptPrior, keep: Float[Array, ""], restore: Float[Array, ""], directions: int) -> Renewal:
    """Forget, then hand out what the next `directions` directions are owed."""
    size = kept.owed.shape[0]
    owed = keep * kept.owed + restore
    index = (kept.turn + jnp.arange(directions)) % size
    if kept.root.ndim == 1:
        rows = jnp.zeros((directions, size), kept.root.dtype).at[jnp.arange(directions), index].set(kept.root[index])
    else:
        rows = kept.root[index]
    return Renewal(
        rows=rows,
        weights=owed[index],
        state=KeptPrior(root=kept.root, owed=owed.at[index].set(0.0), turn=(kept.turn + directions) % size),
    )
