"""A learner that is called once per observation, as a service is: its state stays on the device and is updated in place."""

from typing import Any

import jax
import jax.numpy as jnp

from natkal.engine.checks import check_observation, explain_shapes
from natkal.engine.learner import Learner
from natkal.engine.state import LearnerState, Prediction, StepInfo


class Live:
    """`step` and `predict` without the state, which is kept here; build it with `live`.

    Keys of random streams travel as plain numbers: JAX dispatches a call with them several times faster.
    """

    def __init__(self, learner: Learner, state: LearnerState) -> None:
        self.learner = learner
        leaves, self._structure = jax.tree.flatten(state)
        self._keys = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
        self._leaves = tuple(
            jax.random.key_data(leaf).copy() if is_key else jnp.asarray(leaf).copy()
            for leaf, is_key in zip(leaves, self._keys, strict=True)
        )
        self._advance = jax.jit(self._step, donate_argnums=0)
        self._expect = jax.jit(lambda leaves, inputs: learner.predict_unchecked(self._whole(leaves), inputs))

    @property
    def state(self) -> LearnerState:
        """The learner's state now; a copy, which later calls do not change."""
        return self._whole(tuple(leaf.copy() for leaf in self._leaves))

    def step(self, inputs: Any, target: Any) -> StepInfo:
        """Predict, observe, learn; what the observation told. It may still be in the making when this returns."""
        check_observation(self.learner.model, inputs, target)
        return self.step_unchecked(inputs, target)

    def step_unchecked(self, inputs: Any, target: Any) -> StepInfo:
        """`step` on values already checked."""
        self._leaves, info = self._advance(self._leaves, inputs, target)
        return info

    def predict(self, inputs: Any) -> Prediction:
        """What is expected of the next y for these inputs; learns nothing."""
        check_observation(self.learner.model, inputs)
        with explain_shapes(self.learner.model, self.learner.model.params, (), inputs):
            return self._expect(self._leaves, inputs)

    def _step(self, leaves: tuple[Any, ...], inputs: Any, target: Any) -> tuple[tuple[Any, ...], StepInfo]:
        state, info = self.learner.step_unchecked(self._whole(leaves), inputs, target)
        plain = tuple(
            jax.random.key_data(leaf) if is_key else leaf
            for leaf, is_key in zip(jax.tree.leaves(state), self._keys, strict=True)
        )
        return plain, info

    def _whole(self, leaves: tuple[Any, ...]) -> LearnerState:
        wrapped = [
            jax.random.wrap_key_data(leaf) if is_key else leaf
            for leaf, is_key in zip(leaves, self._keys, strict=True)
        ]
        return jax.tree.unflatten(self._structure, wrapped)


def live(learner: Learner, state: LearnerState) -> Live:
    """A learner to call observation by observation: the state is held and updated in place, without a copy.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> learner = nk.online(model, prior_cov=1.0)
    >>> service = nk.live(learner, learner.init(jnp.zeros(())))
    >>> for _ in range(3):
    ...     info = service.step(1.0, 1.0)
    >>> round(float(service.state.params), 6)
    0.75
    """
    return Live(learner, state)
