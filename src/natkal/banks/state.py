"""What a bank keeps of its members, and what one observation tells."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from natkal.banks.mixture import Mixture
from natkal.banks.selection import SelectionState
from natkal.families.base import Family
from natkal.typing import Array, Bool, Float, Int


class MarginalState(NamedTuple):
    """The memory of the law of the target's own past, and how many rows were observed."""

    memory: Any
    rows: Float[Array, ""]


class ReferenceState(NamedTuple):
    """Log weights of the laws of the member that the bank is never worse than, and of the bank and that member."""

    laws: Float[Array, " v"]
    log_weights: Float[Array, " 2"]


class BankState(NamedTuple):
    """All members' states, group by group with a leading axis, and what is known of the members.

    `noise` is what the predictive laws have learned beside each member. `log_weights` has a row for each member and a
    column for each of its laws. `memory` is the effective number of observations each member remembers, `prior_left`
    the share of its prior that is not forgotten, `reseeded` how often a member went bad and started again. `silent` is
    for how many rows no gradient has reached some array of a member's parameters; below 0 if none ever has, from -1 on.
    `selection` says which members run, where not all do. `marginal` is what is known of the target by its own past,
    `reference` how the member that the bank is never worse than has done beside it.
    """

    members: tuple[Any, ...]
    noise: Any
    log_weights: Float[Array, "m v"]
    memory: Float[Array, " m"]
    prior_left: Float[Array, " m"]
    reseeded: Int[Array, ""]
    silent: Int[Array, " m"]
    selection: SelectionState | None
    marginal: MarginalState | None = None
    reference: ReferenceState | None = None

    def __repr__(self) -> str:
        members, laws = np.shape(self.log_weights)
        return f"BankState({members} members in {len(self.members)} groups, {laws} laws each)"


class BankInfo(NamedTuple):
    """What one observation told a bank.

    `log_prob` is that of y under the mixture before learning; `expert_log_prob` that under each member and law.
    `surprise` is the squared normalised innovation, about 1 on average where the law is right. `memory` and
    `prior_left` are the weighted means over the members. `accepted`: every member could take its step.
    """

    log_prob: Float[Array, ""]
    prediction: Mixture
    observed: Bool[Array, ""]
    accepted: Bool[Array, ""]
    expert_log_prob: Float[Array, "m v"]
    surprise: Float[Array, ""]
    memory: Float[Array, ""]
    prior_left: Float[Array, ""]
    reseeded: Int[Array, ""]


class Told(NamedTuple):
    """What one observation told of one member: its prediction before it, and what became of the member."""

    prediction: Any
    observed: Bool[Array, ""]
    good: Bool[Array, ""]
    keep: Float[Array, ""]
    reached: Bool[Array, ""]


def is_sound(outputs: Family, prediction: Any) -> Bool[Array, ""]:
    """True if the mean is finite and the variances of real numbers are positive, as rounding may leave them not."""
    finite = jnp.all(jnp.isfinite(prediction.mean))
    if outputs.support != "real" or prediction.cov is None:
        return finite
    return finite & jnp.all(jnp.diagonal(jnp.atleast_2d(prediction.cov)) > 0)
