"""How wide draws from the posterior should be: found from the rewards, not set.

A filter's covariance is right for a linear model with a right prior. For a network it is too wide or too narrow by a
factor that nobody knows. Each factor s of a grid predicts the next reward with the covariance s^2 A P A', and the
rewards weigh the factors by Bayes with a fixed share, as a bank weighs its members.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from natkal.banks.mixing import mix
from natkal.engine.joint import JointLaw
from natkal.families.base import Family
from natkal.typing import Array, Float

SCALES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
SHARE = 1e-3
PRIOR_POWER = 0.0
"""Prior weights of the scales are in proportion to scale ** PRIOR_POWER."""
NODES = 9
"""Points of the Gauss-Hermite rule that averages p(y | raw) over a normal law of raw."""
LARGEST_RATIO = 3.0
"""One reward changes the log weight of no scale by more: a wild value says nothing about what is not known."""


def predictive_log_prob(
    family: Family, law: JointLaw, scales: Float[Array, " s"], reward: Float[Array, ""]
) -> Float[Array, " s"]:
    """Log p(reward) of the one arm of `law` for each scale, mixed over the members."""
    location, variance = law.location[:, 0, None], law.cov[:, 0, 0, None] * jnp.square(scales)[None]
    if family.support == "real":
        total = law.noise[:, 0, None] + variance
        each = -0.5 * (jnp.square(reward - location) / total + jnp.log(2 * math.pi * total))
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        raw = location[..., None] + jnp.sqrt(variance)[..., None] * jnp.asarray(nodes, location.dtype)[None, None]
        log_prob = jax.vmap(lambda one: family.log_prob(family.link(one[None]), reward))(raw.reshape(-1))
        log_weights = jnp.asarray(np.log(weights / weights.sum()), location.dtype)
        each = logsumexp(log_prob.reshape(raw.shape) + log_weights[None, None], axis=-1)
    return logsumexp(law.log_weights[:, None] + each, axis=0)


def after_reward(
    family: Family,
    law: JointLaw,
    scales: Float[Array, " s"],
    log_weights: Float[Array, " s"],
    reward: Float[Array, ""],
) -> Float[Array, " s"]:
    """The weights of the scales after a reward; a missing one (NaN) says nothing."""
    known = ~jnp.isnan(reward)
    log_prob = predictive_log_prob(family, law, scales, jnp.where(known, reward, 0.0).astype(law.location.dtype))
    log_prob = jnp.maximum(log_prob, jnp.max(log_prob) - LARGEST_RATIO)
    return jnp.where(known, mix(log_weights, log_prob, SHARE)[1], log_weights)


def start(scales: tuple[float, ...], dtype: jnp.dtype) -> Array:
    """Prior weights: the posterior to the letter is the likeliest, until rewards say that it is too wide."""
    weights = np.power(np.asarray(scales), PRIOR_POWER)
    return jnp.asarray(np.log(weights / weights.sum()), dtype)
