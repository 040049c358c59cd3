"""The probability that an arm is the best of n under normal laws of what each pays."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from natkal import linalg
from natkal.engine.joint import JointLaw
from natkal.typing import Array, Bool, Float, Int

FAR = 1e6
"""How far, in deviations, an arm that is not available is set below the others."""


def best_of_two(law: JointLaw, scales: Float[Array, " s"], log_scales: Float[Array, " s"], arm: Any) -> Array:
    """P(x_arm > x_other) = sum over members and scales of w Phi(d / (scale sd)), exactly.

    d is the difference of the locations and sd its deviation; where it is zero, equal arms share the probability.
    """
    sign = jnp.where(arm == 0, 1.0, -1.0).astype(law.location.dtype)
    ahead = sign * (law.location[:, 0] - law.location[:, 1])
    variance = law.cov[:, 0, 0] + law.cov[:, 1, 1] - 2 * law.cov[:, 0, 1]
    spread = jnp.sqrt(jnp.maximum(variance, 0.0))[:, None] * scales[None]
    certain = jnp.where(ahead == 0, 0.5, (ahead > 0).astype(ahead.dtype))[:, None]
    wins = jnp.where(spread > 0, ndtr(ahead[:, None] / jnp.where(spread > 0, spread, 1.0)), certain)
    return jnp.sum(jnp.exp(law.log_weights[:, None] + log_scales[None]) * wins)


def estimated(
    law: JointLaw,
    scales: Float[Array, " s"],
    log_scales: Float[Array, " s"],
    available: Bool[Array, " n"],
    arm: Int[Array, ""],
    key: Array,
    draws: int,
) -> Float[Array, ""]:
    """P(x_arm is the largest), by sequential conditioning (Geweke, Hajivassiliou and Keane): unbiased, never zero.

    With d_b = x_arm - x_b = delta_b + (L z)_b, the path z_1, z_2, .. is drawn so that each d_b is positive, and the
    estimate is the mean of the products of the probabilities of that, Phi((delta_b + sum_{j<b} L_bj z_j) / L_bb). Each
    member at each scale has paths of its own, `draws` of them in all or a few more.
    """
    count = law.location.shape[1]
    # the other arms, in an order of fixed length: `arm` comes first and is left out
    others = (arm + 1 + jnp.arange(count - 1)) % count

    def differences(location: Array, cov: Array) -> tuple[Array, Array]:
        across = cov[arm, arm] - cov[arm, others]
        between = across[:, None] - cov[others, arm][None, :] + cov[others][:, others]
        between = 0.5 * (between + between.T)
        there = available[others]
        spread = jnp.sqrt(jnp.max(jnp.diagonal(between)))
        delta = jnp.where(there, location[arm] - location[others], FAR * (1 + spread))
        both = there[:, None] & there[None, :]
        return delta, linalg.semidefinite(
            jnp.where(both, between, 0.0) + jnp.diag(jnp.where(there, 0.0, 1.0))
        ).triangle()

    delta, lower = jax.vmap(differences)(law.location, law.cov)
    # every member at every scale, by its weight: one that was left out may be the reason for a rare choice
    pairs = len(law.log_weights) * len(scales)
    each = -(-draws // pairs)
    paths = pairs * each
    member = jnp.repeat(jnp.arange(len(law.log_weights)), len(scales) * each)
    scale = jnp.tile(jnp.repeat(scales, each), len(law.log_weights))
    weights = jax.nn.softmax((law.log_weights[:, None] + log_scales[None]).reshape(-1)) / each
    # draws along the last axis, one path in each column
    ahead = delta[member].T
    rows = jnp.transpose(lower[member] * scale[:, None, None], (1, 2, 0))
    tiny = jnp.finfo(delta.dtype).tiny
    uniform = jax.random.uniform(key, (count - 1, paths), delta.dtype, tiny, 1.0)

    def condition(carried: tuple[Array, Array], position: Any) -> tuple[tuple[Array, Array], None]:
        chance, path = carried
        at, own, gap, row = position
        known = jnp.sum(row * path, axis=0)  # entries of the path that are not drawn yet are zero
        limit = (gap + known) / row[at]
        own_chance = ndtr(limit)
        drawn = -ndtri(jnp.maximum(own * own_chance, tiny))
        return (chance * own_chance, path.at[at].set(jnp.clip(drawn, -FAR, FAR))), None

    start = (jnp.ones(paths, delta.dtype), jnp.zeros((count - 1, paths), delta.dtype))
    (chance, _), _ = jax.lax.scan(condition, start, (jnp.arange(count - 1), uniform, ahead, rows))
    by_path = jnp.repeat(weights, each)
    return jnp.sum(jnp.where(by_path > 0, by_path * chance, 0.0))


def estimated_of_all(
    law: JointLaw,
    scales: Float[Array, " s"],
    log_scales: Float[Array, " s"],
    available: Bool[Array, " n"],
    key: Array,
    draws: int,
) -> Float[Array, " n"]:
    """P(x_a is the largest) of every arm a, with one factorisation for each member: unbiased (Rao and Blackwell).

    For a draw x = h + s L z, arm a given the others is normal around x_a - s q_a / c_a with deviation s / sqrt(c_a),
    where q = L^-T z and c_a is the diagonal of (L L')^-1. The estimate is the mean, over pairs z and -z, of the
    probability that it is above the largest of the others. For one arm `estimated` has less noise; for all of them it
    factors n matrices.
    """
    count, members = law.location.shape[1], len(law.log_weights)

    def factored(cov: Array) -> tuple[Array, Array]:
        both = available[:, None] & available[None, :]
        factor = linalg.semidefinite(jnp.where(both, cov, 0.0) + jnp.diag(jnp.where(available, 0.0, 1.0)))
        return factor.triangle(), factor.whiten(jnp.eye(count, dtype=cov.dtype))

    def one(location: Array, lower: Array, white: Array, scale: Array, normal: Array) -> Array:
        drawn = jnp.where(available[None], location[None] + scale * (normal @ lower.T), -jnp.inf)
        precision = jnp.sum(jnp.square(white), axis=0)[None]
        centre = drawn - scale * (normal @ white) / precision
        two, places = jax.lax.top_k(drawn, 2)
        rival = jnp.where(jnp.arange(count)[None] == places[:, :1], two[:, 1:], two[:, :1])
        return jnp.mean(ndtr((centre - rival) * jnp.sqrt(precision) / scale), axis=0)

    half = -(-draws // (2 * members * len(scales)))
    upper = jax.random.normal(key, (members, len(scales), half, count), law.location.dtype)
    normal = jnp.concatenate([upper, -upper], axis=2)
    by_scale = jax.vmap(one, in_axes=(None, None, None, 0, 0))
    chance = jax.vmap(by_scale, in_axes=(0, 0, 0, None, 0))(law.location, *jax.vmap(factored)(law.cov), scales, normal)
    by_pair = jnp.exp(law.log_weights[:, None] + log_scales[None])
    return jnp.where(available, jnp.einsum("ms,msa->a", by_pair, chance), 0.0)
