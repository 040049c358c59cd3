"""A reward of another order of size than all before it is set aside once, and taken when one like it comes again.

One reward of 1e6 among rewards of size 1 (a wrong unit, a code for "missing") would decide for thousands of rows which
arm is best. What is set aside wrongly costs one reward. Rewards that are large and rare, 50 among ones, are no such
values: decisions depend on them.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from natkal.banks.units.scales import LONE
from natkal.typing import Array, Float

ALIKE = 10.0
"""Rewards whose sizes differ by no more than this factor are alike."""
FIRST = 5.0
"""So many rewards are taken as they are; the default learner of numbers looks at its first rows together."""


class Sizes(NamedTuple):
    """How many rewards were taken, the lowest and the highest, the size of the one set aside last; 0 before any."""

    taken: Float[Array, ""]
    lowest: Float[Array, ""]
    highest: Float[Array, ""]
    aside: Float[Array, ""]

    @property
    def largest(self) -> Float[Array, ""]:
        """The size of the largest reward."""
        return jnp.maximum(-self.lowest, self.highest)


def start(dtype: Any) -> Sizes:
    """No reward seen."""
    zero = jnp.zeros((), dtype)
    return Sizes(zero, zero, zero, zero)


def sift(sizes: Sizes, reward: Float[Array, ""]) -> tuple[Sizes, Float[Array, ""]]:
    """The reward, NaN if it is set aside, and the sizes with it in them; a missing one (NaN) changes nothing."""
    size = jnp.abs(reward)
    wild = (sizes.taken >= FIRST) & (sizes.largest > 0) & (size > LONE * sizes.largest)
    again = (size <= ALIKE * sizes.aside) & (size * ALIKE >= sizes.aside)
    set_aside = wild & ~again
    taken = ~jnp.isnan(reward) & ~set_aside
    first = sizes.taken == 0
    after = Sizes(
        taken=sizes.taken + taken,
        lowest=jnp.where(taken, jnp.where(first, reward, jnp.minimum(sizes.lowest, reward)), sizes.lowest),
        highest=jnp.where(taken, jnp.where(first, reward, jnp.maximum(sizes.highest, reward)), sizes.highest),
        aside=jnp.where(set_aside, size, sizes.aside),
    )
    return after, jnp.where(set_aside, jnp.nan, reward)
