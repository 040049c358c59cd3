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

With forgetting, n and H are bounded by the memory, and arms become worth trying again.

All this believes the model. Rewards without a bound may hide what no model expects: arms of which less is known than
FORCED sqrt(H) rewards are tried by force, as in Track-and-Stop (Garivier and Kaufmann), where each arm is pulled
sqrt(t) times. The number of such trials is of order sqrt(H). They are made where they are cheap: with the probability

    min(1, USUAL_GAP unit / gap)

where `unit` is the usual deviation of a reward, so that a forced trial costs at most USUAL_GAP units on average.
Rewards that are 0 or 1 have no surprises.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from natkal.engine.joint import JointLaw, reward_moments
from natkal.families.base import Family
from natkal.typing import Array, Bool, Float

TRIALS = tuple(2.0**power for power in range(14))
"""Numbers m of further rewards that are considered."""
FORCED = 0.3
"""Times sqrt(H): the rewards that an arm should be known by at least, where rewards have no bound."""
USUAL_GAP = 3.0
"""Usual deviations of a reward by which an arm may be worse and still be tried by force whenever its turn comes."""
LONGEST = 1e9
"""The most decisions that are expected to come."""
NODES = 7
"""Points of the Gauss-Hermite rule for the moments of a reward whose raw output is normal."""


class Candidates(NamedTuple):
    """For each arm, whether it is worth a decision, and the probability of a forced trial when its turn comes.

    `forced` is 0 for arms of which enough is known.
    """

    worth_trying: Bool[Array, " n"]
    forced: Float[Array, " n"]


def candidates(family: Family, law: JointLaw, available: Bool[Array, " n"]) -> Candidates:
    """Of the available arms; the best one is always worth a decision.

    The variances are those of the posterior, not those of the scale that draws are made with: an arm that is taken for
    better known than it is stays untried for good.
    """
    mean, unknown, noise = reward_knowledge(family, law)
    tiny = jnp.finfo(mean.dtype).tiny
    known = jnp.minimum(noise / jnp.maximum(unknown, tiny), LONGEST)
    horizon = jnp.maximum(1.0, jnp.max(jnp.where(available, known, 0.0)))
    gap = jnp.max(jnp.where(available, mean, -jnp.inf)) - mean
    trials = jnp.asarray(TRIALS, mean.dtype)[None, :]
    moved = jnp.sqrt(jnp.maximum(unknown[:, None] * trials / (trials + known[:, None]), tiny))
    distance = -gap[:, None] / moved
    gained = moved * (norm.pdf(distance) + distance * norm.cdf(distance))
    left = jnp.maximum(horizon - trials, 1.0)
    pays = (trials <= horizon) & (left * gained >= trials * gap[:, None])
    hardly_known = available & (family.support != "classes") & (known < FORCED * jnp.sqrt(horizon))
    unit = jnp.sqrt(noise) if law.unit is None else law.unit
    cheap = jnp.minimum(1.0, USUAL_GAP * unit / jnp.maximum(gap, tiny))
    return Candidates(
        worth_trying=available & (jnp.any(pays, axis=1) | (gap <= 0)),
        forced=jnp.where(hardly_known, cheap, 0.0),
    )


def reward_knowledge(
    family: Family, law: JointLaw
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, " n"]]:
    """Of each arm's mean reward: its expectation, its variance, and the variance of a reward around it.

    The raw output is a mixture of normal laws over the members; the moments of a nonlinear mean are a quadrature.
    """
    own = jnp.maximum(jax.vmap(jnp.diagonal)(law.cov), 0.0)
    if family.support == "real":
        mean, square, noise = law.mean, jnp.square(law.mean) + own, law.noise
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        at = jnp.asarray(nodes, own.dtype)
        raw = law.location[..., None] + jnp.sqrt(own)[..., None] * at[None, None]
        means, noises = (part.reshape(raw.shape) for part in reward_moments(family, raw.reshape(-1, 1)))
        share = jnp.asarray(weights / weights.sum(), own.dtype)
        mean, square, noise = means @ share, jnp.square(means) @ share, noises @ share
    by_member = jnp.exp(law.log_weights)
    expected = by_member @ mean
    apart = by_member @ (square - jnp.square(mean)) + by_member @ jnp.square(mean - expected[None])
    return expected, jnp.maximum(apart, 0.0), by_member @ noise
