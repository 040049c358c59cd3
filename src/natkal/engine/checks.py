"""Parameters checked against the model they are for, and data in their precision."""

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


def check_parts(**parts: tuple[Any, type, str]) -> None:
    """Refuse a value that does not have the protocol of its place; the text says what to pass instead."""
    for name, (value, protocol, instead) in parts.items():
        if isinstance(value, type) or not isinstance(value, protocol):
            raise TypeError(f"{name}: got {value!r}; pass {instead}")


def in_precision_of(params: Params, data: Any) -> Any:
    """Floating-point data in the precision of the parameters, which is the precision everything is computed in."""
    return as_precision(jnp.result_type(*jax.tree.leaves(params)), data)


def as_precision(dtype: Any, data: Any) -> Any:
    """Floating-point data as this dtype; whole numbers and booleans as they are."""

    def convert(leaf: Any) -> Array:
        return jnp.asarray(leaf, dtype if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None)

    return jax.tree.map(convert, data)


def all_concrete(value: Any) -> bool:
    """Whether every leaf is known now, and may be looked at."""
    return all(is_concrete(leaf) for leaf in jax.tree.leaves(value))
