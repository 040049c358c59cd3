"""Several steps ahead: the model rolled forward, with all that is not known of it carried along to first order."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.checks import all_concrete
from natkal.engine.learner import KalmanLearner
from natkal.engine.prediction import FilterPrediction, make_prediction
from natkal.engine.state import KalmanState
from natkal.models import RecurrentModel, ravel, ravel_rows
from natkal.typing import Array

Feed = Callable[[Array], Any]


def forecast(
    learner: KalmanLearner, state: KalmanState, inputs: Any, horizon: int, feed: Feed | None = None
) -> FilterPrediction:
    """The next `horizon` observations, blurred by what is not known of parameters, state and the noise on the way.

    All raw outputs are one function of theta, of the state now, and of the noise that enters at each step: process
    noise on the state, and (with `feed`) the observations' own. Its Jacobians carry the covariances of each:
    Cov = A P A' + B W B' + sum_h B_h Q B_h' + sum_h C_h Cov[T(y_h)] C_h', with A the total derivative, through G too.
    """
    if not isinstance(learner.model, RecurrentModel):
        raise ValueError("forecast: a static model has no state to roll forward; call predict on each row of inputs")
    if horizon < 1:
        raise ValueError(f"horizon: must be at least 1, got {horizon}")
    for path, leaf in jax.tree.leaves_with_path(inputs) if feed is None else []:
        if jnp.ndim(leaf) == 0 or len(leaf) != horizon:
            name = "inputs" + jax.tree_util.keystr(path)
            raise ValueError(f"{name}: shape {jnp.shape(leaf)} does not have one row for each of {horizon} steps ahead")
    if all_concrete(inputs) and not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(inputs)):
        raise ValueError("inputs: hold a value that is not finite")
    return _forecast(learner, horizon, feed, state, jax.tree.map(jnp.asarray, inputs))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _forecast(
    learner: KalmanLearner, horizon: int, feed: Feed | None, state: KalmanState, inputs: Any
) -> FilterPrediction:
    model = learner.model
    assert isinstance(model, RecurrentModel)
    system, outputs = model.system, model.outputs
    now = ravel(state.carry.state)
    still = jnp.zeros((horizon, system.state_size), system.dtype)
    silent = jnp.zeros((horizon, outputs.dim), system.dtype)

    def roll(params: Any, start: Array, process: Array, observation: Array) -> Array:
        """Raw outputs (horizon, k) from here on, with a disturbance of the state and of the fed-back T(y)."""

        def step(carry: tuple[Array, Any], row: Any) -> tuple[tuple[Array, Any], Array]:
            before, fed = carry
            given, state_noise, output_noise = row
            u = given if feed is None else fed
            after = system.step(params, before, u) + state_noise
            raw = model.raw(params, after, u)
            following = fed if feed is None else _like(feed(outputs.mean(outputs.link(raw)) + output_noise), fed)
            return (after, following), raw

        rows = inputs if feed is None else None
        return jax.lax.scan(step, (start, None if feed is None else inputs), (rows, process, observation))[1]

    with jax.default_matmul_precision("highest"):
        raws, vjp = jax.vjp(roll, state.params, now, still, silent)
        covectors = jnp.eye(raws.size, dtype=raws.dtype).reshape(-1, *raws.shape)
        by_params, by_start, by_process, by_observation = jax.vmap(vjp)(covectors)
        rows = ravel_rows(by_params) + model.sensitivity.rows(system, state.carry.sensitivity, by_start)
        cov = learner.curvature.quadratic(state.curvature, rows)
        if state.carry.state_cov is not None:
            noise = model.process_noise_matrix()
            cov = cov + by_start @ state.carry.state_cov @ by_start.T
            cov = cov + jnp.einsum("ahn,nm,bhm->ab", by_process, noise, by_process)
        if feed is not None:
            noises = jax.vmap(lambda raw: outputs.cov(outputs.link(raw)))(raws)
            cov = cov + jnp.einsum("ahk,hkl,bhl->ab", by_observation, noises, by_observation)
        blocks = cov.reshape(*raws.shape, *raws.shape)
        own = jnp.stack([blocks[step, :, step, :] for step in range(horizon)])
        return jax.vmap(partial(make_prediction, outputs))(raws, own)


def _like(value: Any, example: Any) -> Any:
    """What `feed` gives, in the shape and dtype of the first input."""
    return jax.tree.map(lambda new, old: jnp.reshape(new, old.shape).astype(old.dtype), value, example)
