"""Several steps ahead: the model rolled forward, with all that is not known of it carried along to first order.

`forecast` gives each step's law in closed form. `start_path` and `follow` give one path of the same law: one deviation
of the parameters is drawn, and the model is followed on whatever inputs the path comes to. Where inputs depend on
earlier outputs in any way at all, paths are the way to get the law of several steps.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal import linalg
from natkal.engine import counter
from natkal.engine.blur import widened
from natkal.engine.checks import all_concrete, in_precision_of
from natkal.engine.learner import KalmanLearner
from natkal.engine.prediction import FilterPrediction, make_prediction
from natkal.engine.state import KalmanState
from natkal.models import Feed
from natkal.typing import Array, Float


class Path(NamedTuple):
    """One possible future: the model's memory on the way, and a draw of theta - params that stays the same all along.

    `growth` is what forgetting multiplies the deviation by: theta wanders, and P grows by 1/keep at each step.
    """

    carry: Any
    deviation: Float[Array, " p"]
    growth: Float[Array, ""]


def start_path(learner: KalmanLearner, state: KalmanState, key: Array) -> Path:
    """The start of a path: a deviation from N(0, P)."""
    deviation = learner.curvature.sample(state.curvature, key)
    return Path(carry=state.carry, deviation=deviation, growth=jnp.ones((), deviation.dtype))


def follow(
    learner: KalmanLearner, state: KalmanState, path: Path, inputs: Any, scale: Any, key: Array
) -> tuple[Path, FilterPrediction]:
    """One step of a path: the law of y given the drawn parameters, raw + scale A deviation, and the path after it.

    A is the total derivative with respect to theta, through the past too. `scale` is the unit that P is kept in. The
    state's own uncertainty (`spread`) is drawn anew at each step.
    """
    outputs = learner.model.outputs
    with jax.default_matmul_precision("highest"):
        around = learner.model.linearize(state.params, path.carry, in_precision_of(state.params, inputs))
        rows = around.pullback(jnp.eye(len(around.raw), dtype=around.raw.dtype))
        scale = jnp.asarray(scale, around.raw.dtype)
        raw = around.raw + scale * path.growth * (rows @ path.deviation)
        if around.spread is not None:
            noise = jax.random.normal(key, raw.shape, raw.dtype)
            raw = raw + scale * (linalg.semidefinite(around.spread).triangle() @ noise)
        keep = learner.rate(counter.value(state.steps, raw.dtype) + 1, jnp.ones((), bool)).keep
        after = Path(carry=around.carry, deviation=path.deviation, growth=path.growth / jnp.sqrt(keep))
        return after, make_prediction(outputs, raw, jnp.zeros((len(raw), len(raw)), raw.dtype))


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
