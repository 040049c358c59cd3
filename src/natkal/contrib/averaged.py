"""Trajectory averaging (Polyak-Juditsky): the mean of the parameters along the way."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.compiling.policy import jit_method
from natkal.engine import KalmanLearner, KalmanState, StepInfo
from natkal.engine.prediction import FilterPrediction
from natkal.engine.protocol import Feed
from natkal.families.base import Family
from natkal.typing import Array, Float, Params


class AveragedState(NamedTuple):
    """The filter's own state, the average of its parameters so far, and how many went into it."""

    inner: KalmanState
    params: Params
    steps: Float[Array, ""]

    def __repr__(self) -> str:
        return f"AveragedState({self.inner!r})"

    @property
    def average(self) -> KalmanState:
        """The filter's state with the average in the place of its parameters."""
        return self.inner._replace(params=self.params)


@dataclasses.dataclass(frozen=True, eq=False)
class Averaged:
    """A filter that predicts with the average of its trajectory; build it with `averaged`."""

    learner: KalmanLearner
    power: float

    @property
    def outputs(self) -> Family:
        """The law of an observation."""
        return self.learner.outputs

    def init(self, params: Params | None = None, key: Array | None = None) -> AveragedState:
        """The average starts where the trajectory does."""
        inner = self.learner.init(params, key)
        dtype = jax.tree.leaves(inner.params)[0].dtype
        return AveragedState(inner=inner, params=inner.params, steps=jnp.zeros((), dtype))

    @jit_method
    def step(self, state: AveragedState, inputs: Any, target: Any) -> tuple[AveragedState, StepInfo]:
        """average <- average + c_t (theta_t - average), c_t = (1 + power) / (t + power): the plain mean for power 0."""
        inner, info = self.learner.step(state.inner, inputs, target)
        steps = state.steps + 1
        share = (1 + self.power) / (steps + self.power)
        params = jax.tree.map(lambda average, new: average + share * (new - average), state.params, inner.params)
        return AveragedState(inner=inner, params=params, steps=steps), info

    @jit_method
    def predict(self, state: AveragedState, inputs: Any) -> FilterPrediction:
        """The predictive law of the averaged parameters."""
        return self.learner.predict(state.average, inputs)

    def restart(self, state: AveragedState) -> AveragedState:
        """The start of a new sequence; all that was learned stays."""
        return state._replace(inner=self.learner.restart(state.inner))

    def forecast(self, state: AveragedState, inputs: Any, horizon: int, feed: Feed | None = None) -> Any:
        """The next `horizon` observations, by the averaged parameters."""
        return self.learner.forecast(state.average, inputs, horizon, feed)

    def sample(self, state: AveragedState, key: Array) -> Params:
        """Parameters drawn from the filter's posterior, moved to the average."""
        return self.learner.sample(state.average, key)

    def covariance(self, state: AveragedState) -> Float[Array, "p p"]:
        """The filter's own."""
        return self.learner.covariance(state.inner)


def averaged(learner: KalmanLearner, *, power: float = 0.0) -> Averaged:
    """The average of the parameters along the trajectory of a filter (Polyak and Juditsky).

    `power` 0 is the plain mean; a larger one weighs later parameters like t^power and forgets the start sooner.
    """
    if not isinstance(learner, KalmanLearner):
        raise ValueError(f"learner: only a filter made by nk.online has one trajectory, got {type(learner).__name__}")
    if power < 0:
        raise ValueError(f"power: must be at least 0, got {power}")
    return Averaged(learner=learner, power=power)
