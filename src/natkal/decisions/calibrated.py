"""A prior whose width is calibrated on the first context: outputs are as uncertain as the family expects."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.compiling.policy import jit_method
from natkal.engine.joint import JointLaw
from natkal.families.base import Family
from natkal.typing import Array, Bool, Params

PRIOR_SPREAD = {"classes": 2.5, "real": 2.5, "count": 1.0, "positive": 1.0}
"""The deviation of a raw output before any reward: of log-odds, of a mean in deviations of the noise, of a log mean."""
LARGEST_CHANGE = 1e6


class CalibratedState(NamedTuple):
    """The inner state, and whether its prior has been calibrated."""

    inner: Any
    done: Bool[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class Calibrated:
    """A learner of rewards whose covariance is scaled once, by its own prediction for the first context.

    The factor makes the variance of a raw output, over arms and members, the square of `PRIOR_SPREAD`. Before any
    reward the covariance is the prior, so this chooses the prior's scale without knowledge of the inputs' units.
    """

    learner: Any

    @property
    def outputs(self) -> Family:
        """The law of a reward."""
        return self.learner.outputs

    def init(self, params: Params | None = None, key: Array | None = None) -> CalibratedState:
        """The inner learner's start."""
        return CalibratedState(inner=self.learner.init(params, key), done=jnp.zeros((), bool))

    @property
    def joint_sizes(self) -> tuple[int, ...]:
        """The inner learner's."""
        return self.learner.joint_sizes

    def joint(self, state: CalibratedState, inputs: Any) -> JointLaw:
        """The joint law of several arms, its covariance calibrated on this context as long as none was learned."""
        law = self.learner.joint(state.inner, inputs)
        return law._replace(cov=law.cov * jnp.where(state.done, 1.0, self._factor(law)))

    @jit_method
    def step(self, state: CalibratedState, inputs: Any, target: Any) -> tuple[CalibratedState, Any]:
        """Calibrate on the first row, then learn."""
        one = {**inputs, "arm": jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], inputs["arm"])}

        def calibrate(inner: Any) -> Any:
            return self.learner.inflate(inner, self._factor(self.learner.joint(inner, one)))

        inner = jax.lax.cond(state.done, lambda inner: inner, calibrate, state.inner)
        after, info = self.learner.step(inner, inputs, target)
        return CalibratedState(inner=after, done=jnp.ones((), bool)), info

    @jit_method
    def predict(self, state: CalibratedState, inputs: Any) -> Any:
        """The inner learner's prediction."""
        return self.learner.predict(state.inner, inputs)

    def restart(self, state: CalibratedState) -> CalibratedState:
        """The start of a new sequence; all that was learned stays."""
        return state._replace(inner=self.learner.restart(state.inner))

    def forecast(self, state: CalibratedState, inputs: Any, horizon: int, feed: Any = None) -> Any:
        """The inner learner's."""
        return self.learner.forecast(state.inner, inputs, horizon, feed)

    def sample(self, state: CalibratedState, key: Array) -> Params:
        """Parameters drawn from the posterior."""
        return self.learner.sample(state.inner, key)

    def covariance(self, state: CalibratedState) -> Array:
        """That of the parameters."""
        return self.learner.covariance(state.inner)

    def inflate(self, state: CalibratedState, factor: Array) -> CalibratedState:
        """The state with every covariance times `factor`."""
        return state._replace(inner=self.learner.inflate(state.inner, factor))

    def _factor(self, law: JointLaw) -> Array:
        """PRIOR_SPREAD^2 over the mean variance of a raw output, in units of the noise where outputs are means."""
        own = jax.vmap(jnp.diagonal)(law.cov)
        if self.outputs.support == "real":
            own = own / law.noise
        wanted = PRIOR_SPREAD.get(self.outputs.support, 1.0) ** 2
        return wanted / jnp.clip(jnp.mean(own), wanted / LARGEST_CHANGE, wanted * LARGEST_CHANGE)
