"""A prior that stays: which of its directions to renew at this step, and with how much weight."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from natkal import linalg
from natkal.curvature.base import Prior, Response
from natkal.curvature.innovation import correction
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


def prior_root(cov: Float[Array, " p"] | Float[Array, "p p"]) -> Float[Array, " p"] | Float[Array, "p p"]:
    """The directions of cov^-1 = sum_i l_i l_i': 1 / sd for variances, the rows of C^-1 (C C' = cov) for a matrix."""
    if cov.ndim == 1:
        return 1 / jnp.sqrt(cov)
    return linalg.cholesky(cov).whiten(jnp.eye(len(cov), dtype=cov.dtype))


def keep_prior(prior: Prior) -> KeptPrior | None:
    """What is needed to renew the prior; None where it is not kept."""
    if prior.kept is None:
        return None
    root = prior_root(prior.kept)
    return KeptPrior(root=root, owed=jnp.zeros(len(root), root.dtype), turn=jnp.zeros((), jnp.int32))


def renew(
    kept: KeptPrior | None, keep: Float[Array, ""], restore: Float[Array, ""] | None, directions: int
) -> Renewal | None:
    """Forget, then hand out what the next `directions` directions are owed."""
    if kept is None or restore is None:
        return None
    size = len(kept.owed)
    count = min(directions, size)
    owed = keep * kept.owed + restore
    index = (kept.turn + jnp.arange(count)) % size
    if kept.root.ndim == 1:
        rows = jnp.zeros((count, size), kept.root.dtype).at[jnp.arange(count), index].set(kept.root[index])
    else:
        rows = kept.root[index]
    return Renewal(
        rows=rows,
        weights=owed[index],
        state=KeptPrior(root=kept.root, owed=owed.at[index].set(0.0), turn=(kept.turn + count) % size),
    )


def with_prior_rows(renewal: Renewal | None, rows: Float[Array, "m p"]) -> Float[Array, "n p"]:
    """The renewed directions above the observation's own rows."""
    return rows if renewal is None else jnp.concatenate([renewal.rows, rows])


def respond_with_prior(
    renewal: Renewal | None,
    gram: Float[Array, "n n"],
    respond: Callable[[Float[Array, "m m"]], Response],
    offset: Float[Array, " p"] | None,
) -> Response:
    """What the prior's directions and the observation say together; the observation sees the prior renewed.

    A direction l_i with weight w is a pseudo-observation of l_i' theta_prior: its factor is sqrt(w), its push
    -w l_i' (theta - theta_prior).
    """
    if renewal is None:
        return respond(gram)
    count = len(renewal.weights)
    prior_factor = jnp.eye(len(gram), count, dtype=gram.dtype) * jnp.sqrt(renewal.weights)[None, :]
    change = correction(gram, prior_factor) @ gram
    answer = respond((gram - change.T @ change)[count:, count:])
    data_factor = jnp.concatenate([jnp.zeros((count, answer.factor.shape[1]), gram.dtype), answer.factor])
    pull = jnp.zeros(count, gram.dtype) if offset is None else -renewal.weights * (renewal.rows @ offset)
    return Response(
        factor=jnp.concatenate([prior_factor, data_factor], axis=1), push=jnp.concatenate([pull, answer.push])
    )
