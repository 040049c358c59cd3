"""What can be wrong with a stream, found on the host and said in the user's words, before anything is changed."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.families.checks import is_concrete
from natkal.models import Model
from natkal.typing import Array, Params


def check_params(model: Model, params: Params) -> None:
    """Parameters must have the structure, shapes and finiteness the model was built with."""
    if jax.tree.structure(params) != jax.tree.structure(model.params):
        raise ValueError(
            f"params: structure {jax.tree.structure(params)} is not the model's {jax.tree.structure(model.params)}"
        )
    for (path, leaf), template in zip(jax.tree.leaves_with_path(params), jax.tree.leaves(model.params), strict=True):
        name = jax.tree_util.keystr(path) or "params"
        if jnp.shape(leaf) != jnp.shape(template):
            raise ValueError(
                f"params: {name} has shape {jnp.shape(leaf)}, the model was built with {jnp.shape(template)}"
            )
        if getattr(leaf, "dtype", None) == np.float64 and not jax.config.read("jax_enable_x64"):
            raise ValueError(
                f"params: {name} is float64, and JAX in 32-bit mode would cut it to float32; pass float32, or turn on "
                'jax.config.update("jax_enable_x64", True)'
            )
        if all_concrete(leaf) and not np.isfinite(np.asarray(leaf)).all():
            raise ValueError(f"params: {name} holds a value that is not finite")


def check_observation(model: Model, inputs: Any, target: Any = None) -> None:
    """One observation: finite inputs, a target the family can produce."""
    if all_concrete(inputs):
        _check_finite(inputs, batched=False)
    if target is not None and all_concrete(target):
        model.outputs.check_targets(np.asarray(target)[None])


def check_stream(model: Model, inputs: Any, targets: Any) -> None:
    """A stream: as many inputs as targets, all finite, all targets possible."""
    count = len(targets)
    for path, leaf in jax.tree.leaves_with_path(inputs):
        if jnp.ndim(leaf) == 0 or len(leaf) != count:
            name = "inputs" + jax.tree_util.keystr(path)
            raise ValueError(f"{name}: shape {jnp.shape(leaf)} does not have one row for each of the {count} targets")
    if all_concrete(inputs):
        _check_finite(inputs, batched=True)
    if all_concrete(targets):
        model.outputs.check_targets(np.asarray(targets))


def check_resets(resets: Any, count: int) -> jax.Array:
    """Sequence boundaries: one boolean for each observation."""
    flags = jnp.asarray(resets)
    if flags.shape != (count,) or flags.dtype != bool:
        raise ValueError(
            f"resets: must be {count} booleans, one for each target, got shape {flags.shape} of {flags.dtype}"
        )
    return flags


@contextlib.contextmanager
def explain_shapes(model: Model, params: Params, carry: Any, inputs: Any) -> Iterator[None]:
    """Say which input shape the model cannot take, instead of where in the trace it failed."""
    try:
        yield
    except TypeError as failure:
        try:
            jax.eval_shape(lambda: model.linearize(params, carry, inputs).raw)
        except TypeError as reason:
            shapes = jax.tree.map(jnp.shape, inputs)
            raise ValueError(f"inputs: the model cannot take a row of shape {shapes}: {reason}") from failure
        raise


def _check_finite(inputs: Any, *, batched: bool) -> None:
    for path, leaf in jax.tree.leaves_with_path(inputs):
        array = np.asarray(leaf)
        if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
            name = "inputs" + jax.tree_util.keystr(path)
            where = np.argwhere(~np.isfinite(array))[0]
            row = f" (row {where[0]})" if batched else ""
            raise ValueError(f"{name}: {array[tuple(where)]} is not a finite number{row}")


def in_precision_of(params: Params, data: Any) -> Any:
    """Floating-point data in the precision of the parameters, which is the precision everything is computed in."""
    dtype = jnp.result_type(*jax.tree.leaves(params))

    def convert(leaf: Any) -> Array:
        return jnp.asarray(leaf, dtype if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None)

    return jax.tree.map(convert, data)


def all_concrete(value: Any) -> bool:
    """Whether every leaf is known now, and may be looked at."""
    return all(is_concrete(leaf) for leaf in jax.tree.leaves(value))
