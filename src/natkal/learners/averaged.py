"""Trajectory averaging (Polyak-Juditsky): the mean of the parameters along the way, for any learner."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.engine.checks import check_observation, check_stream
from natkal.engine.learner import Learner
from natkal.engine.state import LearnerState, Prediction, StepInfo
from natkal.typing import Array, Float, Params


class AveragedState(NamedTuple):
    """The learner's own state, the average of its parameters so far, and how many went into it."""

    inner: LearnerState
    params: Params
    steps: Float[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class Averaged:
    """A learner that predicts with the average of its trajectory; build it with `averaged`."""

    learner: Learner
    power: float

    def init(self, params: Params, key: Array | None = None) -> AveragedState:
        """The average starts where the trajectory does."""
        inner = self.learner.init(params, key)
        return AveragedState(
            inner=inner, params=inner.params, steps=jnp.zeros((), jax.tree.leaves(inner.params)[0].dtype)
        )

    def step(self, state: AveragedState, inputs: Any, target: Any) -> tuple[AveragedState, StepInfo]:
        """The learner's own step, linearised where it stands; then the average moves."""
        check_observation(self.learner.model, inputs, target)
        return self.step_unchecked(state, inputs, target)

    def step_unchecked(self, state: AveragedState, inputs: Any, target: Any) -> tuple[AveragedState, StepInfo]:
        """average <- average + c_t (theta_t - average), c_t = (1 + power) / (t + power): the plain mean for power 0."""
        inner, info = self.learner.step_unchecked(state.inner, inputs, target)
        steps = state.steps + 1
        share = (1 + self.power) / (steps + self.power)
        params = jax.tree.map(lambda average, new: average + share * (new - average), state.params, inner.params)
        return AveragedState(inner=inner, params=params, steps=steps), info

    def predict(self, state: AveragedState, inputs: Any) -> Prediction:
        """What the averaged parameters expect."""
        return self.learner.predict(state.inner._replace(params=state.params), inputs)

    def run(self, state: AveragedState, inputs: Any, targets: Any) -> tuple[AveragedState, StepInfo]:
        """A stream, in one scan."""
        check_stream(self.learner.model, inputs, targets)
        rows = (jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets))
        return jax.jit(lambda state, rows: jax.lax.scan(lambda s, row: self.step_unchecked(s, *row), state, rows))(
            state, rows
        )


def averaged(learner: Learner, *, power: float = 0.0) -> Averaged:
    """The average of the parameters along the trajectory of `learner` (Polyak and Juditsky).

    `power` 0 is the plain mean; a larger one weighs later parameters like t^power and forgets the start sooner.
    """
    if power < 0:
        raise ValueError(f"power: must be at least 0, got {power}")
    return Averaged(learner=learner, power=power)
