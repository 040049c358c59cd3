"""What is known of the mean reward of each arm: its expectation, its variance, and the noise of a reward around it."""

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.joint import JointLaw, reward_moments
from natkal.families.base import Family
from natkal.typing import Array, Float

NODES = 7
"""Points of the Gauss-Hermite rule for the moments of a reward whose raw output is normal."""
MOST_KNOWN = 1e9
"""Rewards that the knowledge of an arm is worth at most."""


def by_member(family: Family, law: JointLaw) -> tuple[Float[Array, "m n"], Float[Array, "m n"], Float[Array, "m n"]]:
    """Of each member: the expected mean reward of each arm, its variance, and the variance of a reward around it.

    The moments of a mean that is not linear in the raw output are a quadrature.
    """
    own = jnp.maximum(jax.vmap(jnp.diagonal)(law.cov), 0.0)
    if family.support == "real":
        return law.mean, own, law.noise
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    at = jnp.asarray(nodes, own.dtype)
    raw = law.location[..., None] + jnp.sqrt(own)[..., None] * at[None, None]
    means, noises = (part.reshape(raw.shape) for part in reward_moments(family, raw.reshape(-1, 1)))
    share = jnp.asarray(weights / weights.sum(), own.dtype)
    mean = means @ share
    return mean, jnp.maximum(jnp.square(means) @ share - jnp.square(mean), 0.0), noises @ share


def of_mixture(family: Family, law: JointLaw) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, " n"]]:
    """The same of the mixture of the members by their weights: what they disagree about is not known either."""
    mean, unknown, noise = by_member(family, law)
    weights = jnp.exp(law.log_weights)
    expected = weights @ mean
    apart = weights @ (unknown + jnp.square(mean - expected[None]))
    return expected, jnp.maximum(apart, 0.0), weights @ noise


def worth_rewards(unknown: Float[Array, "*m n"], noise: Float[Array, "*m n"]) -> Float[Array, "*m n"]:
    """How many rewards what is known of an arm is worth: noise / variance of the mean."""
    return jnp.minimum(noise / jnp.maximum(unknown, jnp.finfo(unknown.dtype).tiny), MOST_KNOWN)
