"""Predictions for many rows at once."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from natkal.engine.protocol import Learner
from natkal.stream.checks import as_arrays, check_learner, check_rows, explain_shapes, explain_state


def predict_many(learner: Learner, state: Any, inputs: Any) -> Any:
    """The prediction for each row of `inputs`, stacked: `.mean` (n, K), `.interval(0.9)`, `.probabilities`.

    The same as `jax.vmap(learner.predict, in_axes=(None, 0))(state, inputs)`, compiled once for each number of rows.
    `inputs` is an array, a list of rows, a frame of numbers, or a pytree of arrays with one row per observation.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Bernoulli())
    >>> learner = nk.online(model)
    >>> nk.predict_many(learner, learner.init(), [[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]).probabilities.shape
    (3, 2)
    """
    check_learner(learner, state)
    rows = jax.tree.map(jnp.asarray, check_rows(as_arrays(inputs, None)[0]))
    first = jax.tree.map(lambda leaf: leaf[0], rows)
    with explain_state(learner, state), explain_shapes(lambda row: learner.predict(state, row), first):
        return _compiled(learner)(state, rows)


@lru_cache(maxsize=256)
def _compiled(learner: Learner) -> Any:
    return jax.jit(jax.vmap(learner.predict, in_axes=(None, 0)))
