"""Small networks as plain functions on plain pytrees: enough for demos, tests and the command line."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from natkal.typing import Array, Params


def mlp_params(key: Array, sizes: Sequence[int]) -> Params:
    """Weights `N(0, 1/fan_in)` and zero biases for layers of these sizes, input first; two make a linear model."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"weight": jax.random.normal(key, (fan_in, fan_out)) / jnp.sqrt(fan_in), "bias": jnp.zeros(fan_out)}
        for key, fan_in, fan_out in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def mlp_apply(params: Params, inputs: Array, activation: Callable[[Array], Array] = jnp.tanh) -> Array:
    """The network's raw output: `activation` between layers, none after the last."""
    *hidden, last = params
    for layer in hidden:
        inputs = activation(inputs @ layer["weight"] + layer["bias"])
    return inputs @ last["weight"] + last["bias"]
