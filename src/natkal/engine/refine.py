"""Batch estimation by repeated passes: Gauss-Newton, one filter pass at a time."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from natkal.engine.checks import check_stream
from natkal.engine.learner import Learner
from natkal.engine.state import LearnerState
from natkal.typing import Array, Params


def refine(learner: Learner, params: Params, inputs: Any, targets: Any, *, passes: int = 10) -> LearnerState:
    """The posterior mode given all observations at once, as a learner's state.

    Every pass starts again from the prior (centred on `params`) and linearises each observation at the previous pass's
    estimate, so each observation counts once and the passes are Gauss-Newton steps (Fisher scoring): on a
    generalised linear model, iteratively reweighted least squares.
    """
    check_stream(learner.model, inputs, targets)
    return _passes(
        learner.textbook, passes, learner.init(params), jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets)
    )


@partial(jax.jit, static_argnums=(0, 1))
def _passes(learner: Learner, passes: int, start: LearnerState, inputs: Any, targets: Any) -> LearnerState:
    def one_pass(index: Array, previous: LearnerState) -> LearnerState:
        def observe(state: LearnerState, row: Any) -> tuple[LearnerState, None]:
            return learner.step_unchecked(state, *row, at=previous.params)[0], None

        return jax.lax.scan(observe, start, (inputs, targets))[0]

    return jax.lax.fori_loop(0, passes, one_pass, start)
