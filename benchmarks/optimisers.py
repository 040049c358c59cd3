"""Adam and SGD, one observation at a time, at their best rate in hindsight."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk

RATES = tuple(10.0**power for power in np.arange(-4, 0.1, 0.5))


class Best(NamedTuple):
    """The rate with the least log loss, what it led to, and the pass itself for timing."""

    rate: float
    params: Any
    log_probs: jax.Array
    scan: Callable[..., Any]
    start: Any


def best_rate(rule: Callable[..., Any], params: Any, inputs: jax.Array, targets: jax.Array) -> Best:
    """One pass at every rate of the grid, the best kept."""

    @jax.jit
    def scan_at(rate: jax.Array, start: Any, inputs: jax.Array, targets: jax.Array) -> Any:
        return jax.lax.scan(lambda state, row: rule(rate, state, *row), start, (inputs, targets))

    zeros = jax.tree.map(jnp.zeros_like, params)
    start = (params, zeros, zeros, jnp.zeros(()))
    best, least = None, math.inf
    for rate in RATES:
        state, log_probs = scan_at(jnp.float32(rate), start, inputs, targets)
        if -float(log_probs.mean()) < least:
            least = -float(log_probs.mean())
            best = Best(rate, state[0], log_probs, lambda *given, at=rate: scan_at(jnp.float32(at), *given), start)
    assert best is not None
    return best


def loss(params: Any, inputs: jax.Array, target: jax.Array) -> jax.Array:
    """The log loss of one observation."""
    return -jax.nn.log_softmax(nk.mlp_apply(params, inputs))[target]


def sgd(rate: jax.Array, state: Any, inputs: jax.Array, target: jax.Array) -> tuple[Any, jax.Array]:
    """theta <- theta - rate g."""
    params, first, second, count = state
    value, gradient = jax.value_and_grad(loss)(params, inputs, target)
    return (jax.tree.map(lambda p, g: p - rate * g, params, gradient), first, second, count), -value


def adam(rate: jax.Array, state: Any, inputs: jax.Array, target: jax.Array) -> tuple[Any, jax.Array]:
    """Kingma and Ba, Algorithm 1, with its own constants."""
    params, first, second, count = state
    value, gradient = jax.value_and_grad(loss)(params, inputs, target)
    new_count = count + 1
    new_first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    new_second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    step = rate * jnp.sqrt(1 - 0.999**new_count) / (1 - 0.9**new_count)
    new_params = jax.tree.map(lambda p, m, v: p - step * m / (jnp.sqrt(v) + 1e-8), params, new_first, new_second)
    return (new_params, new_first, new_second, new_count), -value
