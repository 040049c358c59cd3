"""Several learners side by side: members that start from draws of the prior, and a prediction that mixes them."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.engine.checks import check_stream
from natkal.engine.learner import Learner
from natkal.engine.state import LearnerState
from natkal.typing import Array, Float, Params


class EnsembleInfo(NamedTuple):
    """The log-probability of y under the mixture, and under each member."""

    log_prob: Float[Array, ""]
    member_log_prob: Float[Array, " members"]


class EnsembleState(NamedTuple):
    """All members' states with a leading axis, and the log-weight of each in the mixture."""

    members: LearnerState
    log_weights: Float[Array, " members"]


@dataclasses.dataclass(frozen=True, eq=False)
class Ensemble:
    """Members share model and data, not their start; build it with `ensemble`."""

    learner: Learner
    members: int
    weighted: bool

    def init(self, params: Params, key: Array, *, spread: float = 1.0) -> EnsembleState:
        """Members at `params` plus `spread` times a draw from the prior."""
        centre = self.learner.init(params)

        def member(key: Array) -> LearnerState:
            draw_key, own_key = jax.random.split(key)
            deviation = self.learner.model.unravel(self.learner.curvature.sample(centre.curvature, draw_key))
            start = jax.tree.map(lambda at, by: at + spread * by, centre.params, deviation)
            return centre._replace(params=start, key=own_key)

        members = jax.vmap(member)(jax.random.split(key, self.members))
        dtype = jax.tree.leaves(members.params)[0].dtype
        return EnsembleState(members=members, log_weights=jnp.full(self.members, -jnp.log(float(self.members)), dtype))

    def step_unchecked(self, state: EnsembleState, inputs: Any, target: Any) -> tuple[EnsembleState, EnsembleInfo]:
        """Every member takes its own step; particle weights follow the likelihood, equal ones stay."""
        members, infos = jax.vmap(lambda member: self.learner.step_unchecked(member, inputs, target))(state.members)
        joint = state.log_weights + infos.log_prob
        log_prob = jax.scipy.special.logsumexp(joint)
        log_weights = joint - log_prob if self.weighted else state.log_weights
        return EnsembleState(members=members, log_weights=log_weights), EnsembleInfo(log_prob, infos.log_prob)

    def run(self, state: EnsembleState, inputs: Any, targets: Any) -> tuple[EnsembleState, EnsembleInfo]:
        """A stream, in one scan."""
        check_stream(self.learner.model, inputs, targets)
        return _scan(self, state, jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets))

    def mean(self, state: EnsembleState, inputs: Any) -> Float[Array, " k"]:
        """The mixture's mean parameters for these inputs."""
        means = jax.vmap(lambda member: self.learner.predict_unchecked(member, inputs).mean)(state.members)
        return jnp.exp(state.log_weights) @ means


@partial(jax.jit, static_argnums=0)
def _scan(ensemble: Ensemble, state: EnsembleState, inputs: Any, targets: Any) -> tuple[EnsembleState, EnsembleInfo]:
    return jax.lax.scan(lambda s, row: ensemble.step_unchecked(s, *row), state, (inputs, targets))


def ensemble(learner: Learner, members: int, *, weighted: bool = False) -> Ensemble:
    """`members` copies of a learner, each from its own draw of the prior, run side by side under `vmap`.

    Predictions mix the members equally, or, `weighted`, by their likelihood so far (Gaussian particles: a mixture of
    filters).
    """
    if members < 1:
        raise ValueError(f"members: must be at least 1, got {members}")
    return Ensemble(learner=learner, members=members, weighted=weighted)
