"""A stream through a learner: one scan."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from natkal.engine.checks import check_stream, explain_shapes
from natkal.engine.learner import Learner
from natkal.engine.state import LearnerState, StepInfo


def run(learner: Learner, state: LearnerState, inputs: Any, targets: Any) -> tuple[LearnerState, StepInfo]:
    """Learn from observations in order, each predicted before it is learned from.

    `inputs` is an array, or a pytree of arrays, with one row per observation; `targets` has shape (n,) for scalar
    families (labels are integers) and (n, d) for vector ones. The same as a loop over `learner.step`, in one
    `lax.scan`: returns the last state and all the `StepInfo`s, stacked.
    """
    check_stream(learner.model, inputs, targets)
    with explain_shapes(learner.model, state.params, state.carry, jax.tree.map(lambda leaf: leaf[0], inputs)):
        return _scan(learner, state, jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets))


@partial(jax.jit, static_argnums=0)
def _scan(learner: Learner, state: LearnerState, inputs: Any, targets: Any) -> tuple[LearnerState, StepInfo]:
    return jax.lax.scan(lambda state, row: learner.step_unchecked(state, *row), state, (inputs, targets))
