"""Arms that are tried although the posterior says that it does not pay: the model may be wrong, and has to find out.

The value of information (`worth_trying.py`) believes the model. Rewards without a bound may hide what no model expects:
an arm that pays ten times as much in a part of the contexts that was not tried. After n trials of an arm without a
surprise, contexts with a surprise have a chance of about 1 / n, so what may be missed is room / n per decision, with
`room` what a surprise could pay more than the best arm here; n trials cost n gap. Both are balanced where n grows as
(room / gap)^1/2. Over time, n grows as the logarithm (Lai and Robbins 1985). So an arm is tried by force while

    n_a < log(H / FIRST) (min(room / gap, LARGEST_RATIO))^1/2       H = max_b n_b
    room = max(0, highest - best - DEVIATIONS sd) + max(0, highest - lowest - 2 DEVIATIONS sd)

where n_a is what the member that knows arm a best knows of it in this context, in rewards, `best` is the largest
expected reward here, sd the deviation of the noise, and `lowest` and `highest` are the rewards seen so far: a surprise
may pay as much as the highest, and more by as much as rewards differ, noise apart. Where a trial would cost far more
than anything to be found there is hardly one. While the best arm is worth few rewards there is none either: then the
posterior explores by itself.

Rewards that are 0 or 1 have no surprises.
"""

import jax.numpy as jnp

from natkal.decisions.arm_knowledge import by_member, of_mixture, worth_rewards
from natkal.decisions.wild_rewards import Sizes
from natkal.engine.joint import JointLaw
from natkal.families.base import Family
from natkal.typing import Array, Bool, Float

FIRST = 5.0
"""Rewards that what is known of the best known arm is worth when forced trials begin."""
DEVIATIONS = 4.0
"""The lowest and the highest reward may be accidents by so many deviations of the noise."""
LARGEST_RATIO = 10.0
"""Arms as good as the best cost nothing to try; the ratio of room and gap counts as this at most."""


def hardly_known(family: Family, law: JointLaw, available: Bool[Array, " n"], seen: Sizes) -> Bool[Array, " n"]:
    """The available arms that should be tried by force in this context; none where rewards are classes."""
    if family.support == "classes":
        return jnp.zeros(available.shape, bool)
    _, unknown, noise = by_member(family, law)
    known = jnp.max(worth_rewards(unknown, noise), axis=0)
    expected, _, usual_noise = of_mixture(family, law)
    ratio = _room_over_gap(expected, usual_noise, available, seen)
    most = jnp.max(jnp.where(available, known, 0.0))
    needed = jnp.log(jnp.maximum(most / FIRST, 1.0)) * jnp.sqrt(ratio)
    return available & (known < needed)


def _room_over_gap(
    expected: Float[Array, " n"], noise: Float[Array, " n"], available: Bool[Array, " n"], seen: Sizes
) -> Float[Array, " n"]:
    best = jnp.max(jnp.where(available, expected, -jnp.inf))
    accident = DEVIATIONS * jnp.sqrt(jnp.max(jnp.where(available, noise, 0.0)))
    known = jnp.maximum(seen.highest - best - accident, 0.0)
    room = known + jnp.maximum(seen.highest - seen.lowest - 2 * accident, 0.0)
    gap = jnp.maximum(best - expected, jnp.finfo(expected.dtype).tiny)
    return jnp.minimum(room / gap, LARGEST_RATIO)
