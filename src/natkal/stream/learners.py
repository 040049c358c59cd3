"""Which learner a stream gets: the one place to change when a better one exists."""

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine import Learner, fading, online
from natkal.families import Family, Product
from natkal.models import mlp_apply, mlp_params, static_model
from natkal.stream.errors import StreamError
from natkal.stream.laws import GaussianLaw, Law
from natkal.typing import Array, Params

AUTO_HIDDEN, AUTO_SIZE = 16, 320
"""auto: a hidden layer of up to 16 units, fewer where that would be more than about 320 parameters; none below 2."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the user may say about the learner."""

    model: str = "auto"
    prior_scale: float = 1.0
    fading: float = 3e-4
    seed: int = 0


def make_learner(choice: Choice, width: int, laws: tuple[Law, ...]) -> tuple[Learner, Params]:
    """The learner for rows of `width` numbers under these laws, and the parameters it starts from."""
    family = laws[0].family if len(laws) == 1 else Product(*(law.family for law in laws))
    apply, params = _network(choice, width, laws, family)
    model = static_model(apply, params, family)
    prior_cov = jax.tree.map(lambda leaf: _prior_variance(leaf) * choice.prior_scale, params)
    return online(model, prior_cov=prior_cov, rates=fading(choice.fading)), params


def state_bytes(choice: Choice, width: int, laws: tuple[Law, ...]) -> int:
    """How much memory `make_learner`'s state takes at least, without taking any: p parameters and their covariance."""
    family = laws[0].family if len(laws) == 1 else Product(*(law.family for law in laws))
    shapes = jax.eval_shape(lambda: _network(choice, width, laws, family)[1])
    size = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    return 8 * size * (size + 1)


def _network(
    choice: Choice, width: int, laws: tuple[Law, ...], family: Family
) -> tuple[Callable[[Params, Array], Array], Params]:
    if is_users(choice.model):
        return _user_network(choice.model, width, family)
    heads = sum(1 if isinstance(law, GaussianLaw) else _raw(law) for law in laws)
    hidden = _hidden(choice.model, width, heads)
    layers = _layers(choice.seed, (width, *hidden, heads))
    noises = sum(isinstance(law, GaussianLaw) for law in laws)
    if not noises:
        return mlp_apply, layers

    def apply(params: Params, inputs: Array) -> Array:
        """The network's outputs, each real target's followed by the logarithm of its noise variance."""
        outputs, noise = mlp_apply(params["network"], inputs), params["log_noise"]
        parts, head, real = [], 0, 0
        for law in laws:
            size = 1 if isinstance(law, GaussianLaw) else _raw(law)
            parts.append(outputs[head : head + size])
            head += size
            if isinstance(law, GaussianLaw):
                parts.append(noise[real : real + 1])
                real += 1
        return jnp.concatenate(parts)

    return apply, {"network": layers, "log_noise": jnp.zeros(noises)}


def _layers(seed: int, sizes: tuple[int, ...]) -> Params:
    """The first weights, drawn in one compiled call; a linear model starts by saying nothing."""
    draw = jax.jit(lambda: mlp_params(jax.random.key(seed), sizes))
    if len(sizes) > 2:
        return draw()
    return jax.tree.map(lambda leaf: jnp.asarray(np.zeros(leaf.shape, leaf.dtype)), jax.eval_shape(draw))


def is_users(model: str) -> bool:
    """Whether the model is a function of the user's own, package.module:function."""
    return ":" in model and not model.startswith("mlp:")


def _raw(law: Law) -> int:
    return law.family.raw_dim


def _hidden(model: str, width: int, heads: int) -> tuple[int, ...]:
    """The hidden layers: none for linear."""
    if model == "auto":
        units = min(AUTO_HIDDEN, AUTO_SIZE // (width + 1 + heads))
        return (units,) if units > 1 else ()
    if model == "linear":
        return ()
    name, _, sizes = model.partition(":")
    if name == "mlp":
        try:
            hidden = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            hidden = ()
        if hidden and min(hidden) > 0:
            return hidden
        raise StreamError(f"--model: write mlp:64 or mlp:64,64 (units of each hidden layer), got {model!r}")
    raise StreamError(f"--model: {model!r} is not auto, linear, mlp:64,64 or package.module:function")


def _user_network(spec: str, width: int, family: Family) -> tuple[Callable[[Params, Array], Array], Params]:
    """`function(width, outputs)` of the named module returns (apply, params)."""
    module_name, _, function_name = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function: Any = getattr(importlib.import_module(module_name), function_name)
        apply, params = function(width, family.raw_dim)
    except Exception as error:
        raise StreamError(
            f"--model: {spec} must be a function (inputs, outputs) -> (apply, params): {type(error).__name__}: {error}"
        ) from error
    return apply, jax.tree.map(jnp.asarray, params)


def _prior_variance(leaf: Array) -> float:
    """1/fan-in for a matrix of weights, 1 for biases and the rest."""
    return 1 / leaf.shape[0] if leaf.ndim == 2 else 1.0
