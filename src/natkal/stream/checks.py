"""Checks of shapes and values, made once, on the host, by the drivers; messages name the row and the value."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.checks import all_concrete
from natkal.engine.protocol import Learner
from natkal.families.checks import is_concrete


def check_learner(learner: Any, state: Any) -> None:
    """Refuse what is no learner, and a state that cannot be used any more."""
    if not isinstance(learner, Learner):
        missing = [name for name in ("init", "predict", "step") if not hasattr(learner, name)]
        raise TypeError(
            f"learner: {type(learner).__name__} has no method {missing[0] if missing else 'of a learner'!r}"
        )
    if isinstance(state, type(learner)) or state is None:
        got = "None" if state is None else "a learner"
        raise TypeError(f"state: got {got}; pass the state that learner.init() gives")
    for leaf in jax.tree.leaves(state):
        if isinstance(leaf, jax.Array) and is_concrete(leaf):
            if leaf.is_deleted():
                raise ValueError("state: was used up by an earlier call; go on with the state which that call returned")
            if leaf.dtype == jnp.float64 and not jax.config.read("jax_enable_x64"):
                raise ValueError(
                    "state: is float64 and JAX is in 32-bit mode; turn on "
                    'jax.config.update("jax_enable_x64", True), or start from float32 parameters'
                )


def check_observation(learner: Any, inputs: Any, target: Any = None) -> None:
    """One observation: finite inputs, a target the family can produce."""
    if all_concrete(inputs):
        _check_finite(inputs, batched=False)
    family = getattr(learner, "outputs", None)
    if family is not None and target is not None and all_concrete(target):
        family.check_targets(np.asarray(target)[None])


def check_stream(learner: Any, inputs: Any, targets: Any) -> None:
    """A stream: as many inputs as targets, all finite, all targets possible."""
    count = len(targets)
    for path, leaf in jax.tree.leaves_with_path(inputs):
        if jnp.ndim(leaf) == 0 or len(leaf) != count:
            name = "inputs" + jax.tree_util.keystr(path)
            raise ValueError(f"{name}: shape {jnp.shape(leaf)} does not have one row for each of the {count} targets")
    if all_concrete(inputs):
        _check_finite(inputs, batched=True)
    family = getattr(learner, "outputs", None)
    if family is not None and all_concrete(targets):
        family.check_targets(np.asarray(targets))


def check_rows(inputs: Any) -> Any:
    """Rows to predict: finite, and as many in each array."""
    leaves = jax.tree.leaves(inputs)
    counts = {len(leaf) if jnp.ndim(leaf) else -1 for leaf in leaves}
    if len(counts) != 1 or -1 in counts:
        shapes = jax.tree.map(jnp.shape, inputs)
        raise ValueError(f"inputs: must have one row for each prediction, got shape {shapes}; predict takes one row")
    if all_concrete(inputs):
        _check_finite(inputs, batched=True)
    return inputs


def check_resets(resets: Any, count: int) -> jax.Array:
    """Sequence boundaries: one boolean for each observation."""
    flags = jnp.asarray(resets)
    if flags.shape != (count,) or flags.dtype != bool:
        raise ValueError(
            f"resets: must be {count} booleans, one for each target, got shape {flags.shape} of {flags.dtype}"
        )
    return flags


@contextlib.contextmanager
def explain_shapes(predict: Callable[[Any], Any], inputs: Any) -> Iterator[None]:
    """Say which input shape cannot be predicted from, instead of where in the trace it failed."""
    try:
        yield
    except (TypeError, ValueError) as failure:
        try:
            jax.eval_shape(predict, inputs)
        except (TypeError, ValueError) as reason:
            shapes = jax.tree.map(jnp.shape, inputs)
            raise ValueError(f"inputs: the model cannot take a row of shape {shapes}: {reason}") from failure
        raise


@contextlib.contextmanager
def explain_state(learner: Learner, state: Any) -> Iterator[None]:
    """Say that a state is not of the type that `init` gives (the parameters, say), instead of what it lacks."""
    try:
        yield
    except AttributeError as failure:
        expected = jax.eval_shape(lambda: learner.init())
        if isinstance(state, type(expected)):
            raise
        raise TypeError(
            f"state: got {type(state).__name__}, and learner.init() gives {type(expected).__name__}; "
            "pass learner.init(params) to start from parameters"
        ) from failure


def as_arrays(inputs: Any, targets: Any) -> tuple[Any, Any]:
    """Data frames and lists of rows as arrays; anything else is left as it is."""
    if hasattr(inputs, "to_numpy") and not isinstance(inputs, np.ndarray | jax.Array):
        inputs = inputs.to_numpy()
        if inputs.dtype == object:
            raise ValueError("inputs: the frame has columns that are not numbers; nk.learn takes such frames")
    elif isinstance(inputs, list):
        inputs = _as_array("inputs", inputs)
    if hasattr(targets, "to_numpy") and not isinstance(targets, np.ndarray | jax.Array):
        targets = targets.to_numpy()
    elif isinstance(targets, list):
        targets = _as_array("targets", targets)
    return inputs, targets


def _as_array(name: str, rows: list[Any]) -> np.ndarray:
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise ValueError(f"{name}: the rows of the list have different lengths") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}: the list holds values that are not numbers")
    return array


def _check_finite(inputs: Any, *, batched: bool) -> None:
    for path, leaf in jax.tree.leaves_with_path(inputs):
        array = np.asarray(leaf)
        if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
            name = "inputs" + jax.tree_util.keystr(path)
            where = np.argwhere(~np.isfinite(array))[0]
            row = f" (row {where[0]})" if batched else ""
            raise ValueError(f"{name}: {array[tuple(where)]} is not a finite number{row}")
