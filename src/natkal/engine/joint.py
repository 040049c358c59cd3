"""The joint law of what several arms pay: normal around the linearised outputs, for every learner alike."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

from natkal.families.base import Family
from natkal.typing import Array, Float


class JointLaw(NamedTuple):
    """What is known of the outputs of n arms: a mixture of m normal laws, one for each member of a learner.

    `location` (m, n) and `cov` (m, n, n) are those of the first raw output of each arm, A P A' with the rows A of all
    arms: the correlations between arms are in it. The expected reward increases with the raw output in every family of
    numbers, so the arms can be ranked by it. `mean` (m, n) and `noise` (m, n) are the expected reward at the location
    and the variance of a reward around it.
    """

    log_weights: Float[Array, " m"]
    location: Float[Array, "m n"]
    cov: Float[Array, "m n n"]
    mean: Float[Array, "m n"]
    noise: Float[Array, "m n"]


@runtime_checkable
class ArmsLearner(Protocol):
    """A learner that can be asked for several arms at once; its model is an `ArmsModel`."""

    @property
    def outputs(self) -> Family:
        """The law of a reward."""
        ...

    @property
    def joint_sizes(self) -> tuple[int, ...]:
        """How many parameters each member learns that `joint` has a law of."""
        ...

    def joint(self, state: Any, inputs: Any) -> JointLaw:
        """The joint law of the arms that `inputs["arm"]` has along its first axis."""
        ...

    def inflate(self, state: Any, factor: Any) -> Any:
        """The state with every covariance times `factor`."""
        ...


def reward_moments(family: Family, raw: Float[Array, "n k"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """E[y] and Var[y] of each arm: the first entries of E[T(y)] and Cov[T(y)]."""

    def one(own: Float[Array, " k"]) -> tuple[Array, Array]:
        natural = family.link(own)
        return family.mean(natural)[0], family.cov(natural)[0, 0]

    return jax.vmap(one)(raw)
