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

from natkal.curvature import blocks, dense
from natkal.engine import Learner, fading, online
from natkal.families import Family, Gaussian, Product
from natkal.learners import Bank, auto
from natkal.models import Model, cells, mlp_apply, mlp_params, recurrent_model, static_model
from natkal.tabular.errors import StreamError
from natkal.tabular.laws import GaussianLaw, Law
from natkal.tabular.settings import Choice
from natkal.typing import Array, Params

AUTO_HIDDEN, AUTO_SIZE = 16, 320
"""auto: a hidden layer of up to 16 units, fewer where that would be more than about 320 parameters; none below 2."""
FILTERS = 6
"""How many filters a bank has: more cost time in proportion, and gain little."""
DENSE = 1500
"""The most parameters that get a full covariance; a larger model gets one for each unit's own weights."""
CELLS = {"rnn": cells.tanh, "gru": cells.gru, "lstm": cells.lstm}


def make_learner(choice: Choice, width: int, laws: tuple[Law, ...]) -> tuple[Learner | Bank, Params]:
    """The learner for rows of `width` numbers under these laws, and the parameters it starts from."""
    banked = choice.learner == "auto" and len(laws) == 1
    model = _model(choice, width, laws, noise_outside=banked)
    # the same kernel on every machine, so that a checkpoint may move between them
    curvature = dense(kernel="jax") if model.size <= DENSE else blocks()
    if banked:
        # The stream has scaled inputs and targets already, by earlier rows alone.
        return auto(model, budget=FILTERS, standardize=False, curvature=curvature).bank, model.params
    prior_cov = jax.tree.map(lambda leaf: _prior_variance(leaf) * choice.prior_scale, model.params)
    return online(model, prior_cov=prior_cov, curvature=curvature, rates=fading(choice.fading)), model.params


def state_bytes(choice: Choice, width: int, laws: tuple[Law, ...]) -> int:
    """How much memory `make_learner`'s state takes, without taking any."""

    def start(prior_scale: Any) -> Any:
        learner, params = make_learner(dataclasses.replace(choice, prior_scale=prior_scale), width, laws)
        return learner.init(params, jax.random.key(0))

    try:
        leaves = jax.tree.leaves(jax.eval_shape(start, 1.0))
    except (OverflowError, ValueError):  # more than can be counted, or than the planner allows
        return sys.maxsize
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.number))


def has_memory(model: str) -> bool:
    """Whether the model carries a state from row to row."""
    return model.partition(":")[0] in CELLS and ":" in model


def is_users(model: str) -> bool:
    """Whether the model is a function of the user's own, package.module:function."""
    return ":" in model and not model.startswith("mlp:") and not has_memory(model)


def _model(choice: Choice, width: int, laws: tuple[Law, ...], *, noise_outside: bool) -> Model:
    """The model; a real target's noise is one of its parameters, or learned outside of it, by a bank."""
    family = laws[0].family if len(laws) == 1 else Product(*(law.family for law in laws))
    noises = sum(isinstance(law, GaussianLaw) for law in laws)
    if noises and noise_outside:
        family, noises = Gaussian(1.0), 0
    if is_users(choice.model):
        return static_model(*_user_network(choice.model, width, family), family)
    heads = sum(1 if isinstance(law, GaussianLaw) else law.family.raw_dim for law in laws)
    if has_memory(choice.model):
        cell = _cell(choice.model)
        network = _drawn(lambda key: _recurrent_params(key, cell, width, heads), choice.seed)
        params = {**network, "log_noise": np.zeros(noises)} if noises else network

        def read(params: Params, state: Any, inputs: Array) -> Array:
            """The law's raw output, from the cell's units."""
            return _with_noise(laws, cell.readout(params, state, inputs), params.get("log_noise"))

        return recurrent_model(cell, read, params, cell.state(), family)
    layers = _layers(choice.seed, width, _hidden(choice.model, width, heads), heads)
    if not noises:
        return static_model(mlp_apply, layers, family)

    def apply(params: Params, inputs: Array) -> Array:
        """The law's raw output, from the last layer."""
        return _with_noise(laws, mlp_apply(params["network"], inputs), params["log_noise"])

    return static_model(apply, {"network": layers, "log_noise": np.zeros(noises)}, family)


def _with_noise(laws: tuple[Law, ...], outputs: Array, noise: Array | None) -> Array:
    """The network's outputs, each real target's followed by the logarithm of its noise variance."""
    if noise is None:
        return outputs
    parts, head, real = [], 0, 0
    for law in laws:
        size = 1 if isinstance(law, GaussianLaw) else law.family.raw_dim
        parts.append(outputs[head : head + size])
        head += size
        if isinstance(law, GaussianLaw):
            parts.append(noise[real : real + 1])
            real += 1
    return jnp.concatenate(parts)


def _cell(model: str) -> cells.Cell:
    name, _, units = model.partition(":")
    if not units.isdecimal() or not int(units):
        raise StreamError(f"--model: write {name}:32 (how many units), got {model!r}")
    return CELLS[name](int(units))


def _recurrent_params(key: Array, cell: cells.Cell, width: int, heads: int) -> Params:
    cell_key, readout_key = jax.random.split(key)
    return {"cell": cell.params(cell_key, width), "readout": cells.readout_params(readout_key, cell.width, heads)}


def _drawn(draw: Callable[[Array], Params], seed: int) -> Params:
    """First weights, drawn in one compiled call."""
    return jax.jit(lambda: draw(jax.random.key(seed)))()


def _layers(seed: int, width: int, hidden: tuple[int, ...], heads: int) -> Params:
    """The first weights of a network without memory; a linear one starts by saying nothing."""
    if hidden:
        return _drawn(lambda key: mlp_params(key, (width, *hidden, heads)), seed)
    return [{"weight": np.zeros((width, heads)), "bias": np.zeros(heads)}]


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
    raise StreamError(f"--model: {model!r} is not auto, linear, mlp:64,64, gru:32 or package.module:function")


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


def _prior_variance(leaf: Any) -> float:
    """1/fan-in for a matrix of weights, 1 for biases and the rest."""
    return 1 / leaf.shape[0] if leaf.ndim == 2 else 1.0
