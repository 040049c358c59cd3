"""A stream through a learner: one scan."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from natkal.engine.checks import check_resets, check_stream, explain_shapes
from natkal.engine.learner import Learner
from natkal.engine.state import LearnerState, StepInfo


def run(
    learner: Learner, state: LearnerState, inputs: Any, targets: Any, *, resets: Any = None
) -> tuple[LearnerState, StepInfo]:
    """Learn from observations in order, each predicted before it is learned from.

    `inputs` is an array, or a pytree of arrays, with one row per observation; `targets` has shape (n,) for scalar
    families (labels are integers) and (n, d) for vector ones. The same as a loop over `learner.step`, in one
    `lax.scan`: returns the last state and all the `StepInfo`s, stacked. Where `resets` (n booleans) is true, a new
    sequence starts with that observation: the model's state starts again, all that was learned stays.
    """
    check_stream(learner.model, inputs, targets)
    boundaries = None if resets is None else check_resets(resets, len(targets))
    with explain_shapes(learner.model, state.params, state.carry, jax.tree.map(lambda leaf: leaf[0], inputs)):
        return scan(learner, state, jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets), boundaries)


@partial(jax.jit, static_argnums=0)
def scan(
    learner: Learner, state: LearnerState, inputs: Any, targets: Any, resets: Any = None
) -> tuple[LearnerState, StepInfo]:
    """`run` on values already checked, for use inside other transformations."""

    def observe(state: LearnerState, row: Any) -> tuple[LearnerState, StepInfo]:
        inputs, target, reset = row
        if reset is not None:
            state = jax.lax.cond(reset, learner.restart, lambda state: state, state)
        return learner.step_unchecked(state, inputs, target)

    return jax.lax.scan(observe, state, (inputs, targets, resets))
