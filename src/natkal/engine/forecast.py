"""Several steps ahead: the model rolled forward, with all that is not known of it carried along to first order."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.blur import widened
from natkal.engine.checks import all_concrete, in_precision_of
from natkal.engine.learner import KalmanLearner
from natkal.engine.prediction import FilterPrediction, make_prediction
from natkal.engine.state import KalmanState
from natkal.models import Feed


def forecast(
    learner: KalmanLearner, state: KalmanState, inputs: Any, horizon: int, feed: Feed | None = None
) -> FilterPrediction:
    """The next `horizon` observations, blurred by what is not known of parameters, state and the noise on the way.

    The model rolls itself forward (`Model.roll`). Each step's covariance is A P A' + spread: A is the total derivative
    with respect to theta, and the spread holds the state's own uncertainty, its process noise, and with `feed` the
    noise of the observations that are fed back. A model without memory predicts each row by itself.
    """
    if horizon < 1:
        raise ValueError(f"horizon: must be at least 1, got {horizon}")
    for path, leaf in jax.tree.leaves_with_path(inputs) if feed is None else []:
        if jnp.ndim(leaf) == 0 or len(leaf) != horizon:
            name = "inputs" + jax.tree_util.keystr(path)
            raise ValueError(f"{name}: shape {jnp.shape(leaf)} does not have one row for each of {horizon} steps ahead")
    if all_concrete(inputs) and not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(inputs)):
        raise ValueError("inputs: hold a value that is not finite")
    return _forecast(learner, horizon, feed, state, in_precision_of(state.params, inputs))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _forecast(
    learner: KalmanLearner, horizon: int, feed: Feed | None, state: KalmanState, inputs: Any
) -> FilterPrediction:
    with jax.default_matmul_precision("highest"):
        ahead = learner.model.roll(state.params, state.carry, inputs, horizon, feed)
        steps, outputs, size = ahead.rows.shape
        gram = learner.curvature.quadratic(state.curvature, ahead.rows.reshape(-1, size))
        own = jnp.einsum("hkhl->hkl", gram.reshape(steps, outputs, steps, outputs))
        return jax.vmap(partial(make_prediction, learner.model.outputs))(ahead.raw, widened(own, ahead.spread))
