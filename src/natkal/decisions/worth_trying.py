"""Which arms are worth trying: those of which more rewards could pay for what trying them costs.

The value of information (the knowledge gradient of Frazier, Powell and Dayanik, over several rewards at once as its
variant KG(*), and over many decisions as in Ryzhov, Powell and Frazier). For the decision at hand, arm a has a mean
reward mu_a that is known up to the variance v_a, and rewards have the variance tau_a around it. What is known of the
arm is worth n_a = tau_a / v_a rewards. After m more rewards the mean will have moved by a normal amount of variance

    s_m^2 = v_a m / (m + n_a)

so that the arm will be better than the present best by s_m f(-gap / s_m) on average, f(z) = phi(z) + z Phi(z). The m
trials cost m gap. As many decisions like this one are expected to come as there were: H, the largest n_b of all arms.
An arm is worth trying if for some m <= H

    (H - m) s_m f(-gap / s_m) >= m gap .

With forgetting, n and H are bounded by the memory, and arms become worth trying again. All this believes the model;
`forced_trials.py` does not.
"""

import jax.numpy as jnp
from jax.scipy.stats import norm

from natkal.decisions.arm_knowledge import of_mixture, worth_rewards
from natkal.engine.joint import JointLaw
from natkal.families.base import Family
from natkal.typing import Array, Bool

TRIALS = tuple(2.0**power for power in range(14))
"""Numbers m of further rewards that are considered."""


def pays_to_try(family: Family, law: JointLaw, available: Bool[Array, " n"]) -> Bool[Array, " n"]:
    """Which of the available arms are worth a decision; the best one always is.

    The variances are those of the posterior, not those of the scale that draws are made with: an arm that is taken for
    better known than it is stays untried for good.
    """
    mean, unknown, noise = of_mixture(family, law)
    known = worth_rewards(unknown, noise)
    horizon = jnp.maximum(1.0, jnp.max(jnp.where(available, known, 0.0)))
    gap = jnp.max(jnp.where(available, mean, -jnp.inf)) - mean
    trials = jnp.asarray(TRIALS, mean.dtype)[None, :]
    moved = unknown[:, None] * trials / (trials + known[:, None])
    moved = jnp.sqrt(jnp.maximum(moved, jnp.finfo(mean.dtype).tiny))
    distance = -gap[:, None] / moved
    gained = moved * (norm.pdf(distance) + distance * norm.cdf(distance))
    left = jnp.maximum(horizon - trials, 1.0)
    pays = (trials <= horizon) & (left * gained >= trials * gap[:, None])
    return available & (jnp.any(pays, axis=1) | (gap <= 0))
