"""How much each member counts in a decision: by the squared error of its mean rewards, where rewards are real numbers.

A decision depends on means. A weight by likelihood is another thing: of two members, the one that predicts the common
rewards to within their small noise has nearly all of it, however wrong it is about the few large ones. So each member m
has the log probability -e_m^2 / (2 s) of a reward, with e_m the error of its mean and s the running mean of the squared
error of the members by their present weights: one scale for all of them. Bayes with a fixed share weighs them.

Before any reward the weight of a member is in inverse proportion to the square of the number of its parameters: after
few rewards a small model has the better means, and a large one takes part in decisions once its errors are smaller.

Rewards that are classes or counts have no noise of their own that could be small; there the likelihood decides.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from natkal.banks.mixing import mix
from natkal.engine.joint import JointLaw
from natkal.typing import Array, Float

SHARE = 1e-3
MEMORY = 1000.0
"""Rewards that the running mean of squared errors counts for at most."""
LARGEST_RATIO = 3.0
"""One reward changes the log weight of no member by more."""


class DecisionWeights(NamedTuple):
    """Log weights of the members, the running mean of squared errors, and how many rewards it has."""

    log_weights: Float[Array, " m"]
    error: Float[Array, ""]
    rewards: Float[Array, ""]


def start(sizes: tuple[int, ...], dtype: Any) -> DecisionWeights:
    """Weights in inverse proportion to the squares of the members' numbers of parameters."""
    inverse = 1 / np.square(np.asarray(sizes, float))
    zero = jnp.zeros((), dtype)
    return DecisionWeights(jnp.asarray(np.log(inverse / inverse.sum()), dtype), zero, zero)


def after_reward(weights: DecisionWeights, law: JointLaw, reward: Float[Array, ""]) -> DecisionWeights:
    """The weights after a reward of the one arm of `law`; a missing one (NaN) says nothing."""
    known = ~jnp.isnan(reward)
    square = jnp.where(known, jnp.square(reward - law.mean[:, 0]), 0.0).astype(weights.error.dtype)
    rewards = jnp.minimum(weights.rewards + 1, MEMORY)
    error = weights.error + (jnp.exp(weights.log_weights) @ square - weights.error) / rewards
    log_prob = -square / (2 * jnp.maximum(error, jnp.finfo(error.dtype).tiny))
    log_prob = jnp.maximum(log_prob, jnp.max(log_prob) - LARGEST_RATIO)
    after = DecisionWeights(mix(weights.log_weights, log_prob, SHARE)[1], error, rewards)
    return DecisionWeights(*(jnp.where(known, new, old) for new, old in zip(after, weights, strict=True)))
