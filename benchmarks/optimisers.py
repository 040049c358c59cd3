"""Update rules of optimisers, one observation at a time, and the best rate of one in hindsight."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.typing import Array

RATES = tuple(float(f"{10.0**power:.3g}") for power in np.arange(-4, 0.1, 0.5))
ADAM = {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0}
"""The constants of Kingma and Ba."""
IVON_DECAY = 1e-4


class Memory(NamedTuple):
    """Two running averages of the size of theta, the number of the step, and a key."""

    first: Array
    second: Array
    steps: Array
    key: Array


Slope = Callable[[Array], Array]
Rule = Callable[[dict[str, Any], Array, Memory, Slope], tuple[Array, Memory]]


def sgd(setting: dict[str, Any], theta: Array, memory: Memory, slope: Slope) -> tuple[Array, Memory]:
    """theta <- theta - rate v,  v <- momentum v + g."""
    velocity = setting["momentum"] * memory.first + slope(theta)
    return theta - setting["rate"] * velocity, memory._replace(first=velocity)


def rmsprop(setting: dict[str, Any], theta: Array, memory: Memory, slope: Slope) -> tuple[Array, Memory]:
    """theta <- theta - rate g / sqrt(v + 1e-8),  v <- decay v + (1 - decay) g^2."""
    gradient = slope(theta)
    second = setting["decay"] * memory.second + (1 - setting["decay"]) * gradient**2
    return theta - setting["rate"] * gradient / jnp.sqrt(second + 1e-8), memory._replace(second=second)


def adamw(setting: dict[str, Any], theta: Array, memory: Memory, slope: Slope) -> tuple[Array, Memory]:
    """Adam with decoupled weight decay (Loshchilov and Hutter, Algorithm 2); Adam itself where the decay is 0."""
    gradient = slope(theta)
    first = setting["beta1"] * memory.first + (1 - setting["beta1"]) * gradient
    second = setting["beta2"] * memory.second + (1 - setting["beta2"]) * gradient**2
    unbiased_first = first / (1 - setting["beta1"] ** memory.steps)
    unbiased_second = second / (1 - setting["beta2"] ** memory.steps)
    step = unbiased_first / (jnp.sqrt(unbiased_second) + 1e-8) + setting["weight_decay"] * theta
    return theta - setting["rate"] * step, memory._replace(first=first, second=second)


def ivon(setting: dict[str, Any], theta: Array, memory: Memory, slope: Slope) -> tuple[Array, Memory]:
    """Variational online Newton (Shen et al. 2024, Algorithm 1), predicting with its mean.

    sample = m + sigma e,  sigma^2 = 1 / (rows (h + decay));  h^ = g (sample - m) / sigma^2
    g <- beta1 g + (1 - beta1) g^;  h <- beta2 h + (1 - beta2) h^ + (1 - beta2)^2 (h - h^)^2 / (2 (h + decay))
    m <- m - rate (h0 + decay) (g / (1 - beta1^t) + decay m) / (h + decay)
    """
    beta1, beta2 = setting["beta1"], setting["beta2"]
    hessian = jnp.where(memory.steps == 1, setting["h0"], memory.second)
    precision = setting["rows"] * (hessian + IVON_DECAY)
    key, draw = jax.random.split(memory.key)
    noise = jax.random.normal(draw, theta.shape) / jnp.sqrt(precision)
    gradient = slope(theta + noise)
    seen = gradient * noise * precision
    first = beta1 * memory.first + (1 - beta1) * gradient
    correction = 0.5 * (1 - beta2) ** 2 * (hessian - seen) ** 2 / (hessian + IVON_DECAY)
    second = beta2 * hessian + (1 - beta2) * seen + correction
    rate = setting["rate"] * (setting["h0"] + IVON_DECAY)
    unbiased = first / (1 - beta1**memory.steps)
    moved = theta - rate * (unbiased + IVON_DECAY * theta) / (second + IVON_DECAY)
    return moved, memory._replace(first=first, second=second, key=key)


class BestRate(NamedTuple):
    """The rate with the least log loss, what it led to, and the pass itself for timing."""

    rate: float
    params: Any
    log_probs: jax.Array
    scan: Callable[..., Any]
    start: Any


def best_rate(rule: Rule, params: Any, inputs: Array, targets: Array) -> BestRate:
    """One pass of a classifier at every rate, the best kept; Adam without weight decay, SGD without momentum."""

    def step(rate: Array, state: Any, inputs: Array, target: Array) -> tuple[Any, Array]:
        old, memories, count = state
        value, gradient = jax.value_and_grad(_loss)(old, inputs, target)
        setting = {"rate": rate, "momentum": 0.0, **ADAM}
        leaves, tree = jax.tree.flatten(old)
        moved = [
            rule(setting, leaf, memory._replace(steps=count + 1), lambda _, slope=slope: slope)
            for leaf, memory, slope in zip(leaves, memories, jax.tree.leaves(gradient), strict=True)
        ]
        return (jax.tree.unflatten(tree, [one for one, _ in moved]), [one for _, one in moved], count + 1), -value

    @jax.jit
    def scan_at(rate: Array, start: Any, inputs: Array, targets: Array) -> Any:
        return jax.lax.scan(lambda state, row: step(rate, state, *row), start, (inputs, targets))

    count, key = jnp.zeros(()), jax.random.key(0)
    zeros = [jnp.zeros_like(leaf) for leaf in jax.tree.leaves(params)]
    start = (params, [Memory(first=zero, second=zero, steps=count, key=key) for zero in zeros], count)
    best, least = None, math.inf
    for rate in RATES:
        state, log_probs = scan_at(jnp.float32(rate), start, inputs, targets)
        if -float(log_probs.mean()) < least:
            least = -float(log_probs.mean())
            best = BestRate(rate, state[0], log_probs, lambda *given, at=rate: scan_at(jnp.float32(at), *given), start)
    assert best is not None
    return best


def _loss(params: Any, inputs: Array, target: Array) -> Array:
    return -jax.nn.log_softmax(nk.mlp_apply(params, inputs))[target]
