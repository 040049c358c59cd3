"""A stream through a learner: one scan."""

from functools import lru_cache, partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from natkal.drivers.compact import Compact, compact
from natkal.engine.batch import check_batchable, scan_batches
from natkal.engine.checks import check_resets, check_stream, explain_shapes
from natkal.engine.learner import Learner
from natkal.engine.state import LearnerState, StepInfo
from natkal.models import Model


@runtime_checkable
class Streamable(Protocol):
    """What `run` asks of a learner; `state` is whatever its own `init` gives, with `params` and `carry`."""

    @property
    def model(self) -> Model:
        """The model that inputs and targets are checked against."""
        ...

    def prepare(self, state: Any, inputs: Any) -> Any:
        """The state ready for inputs of this shape."""
        ...

    def restart(self, state: Any) -> Any:
        """The start of a new sequence."""
        ...

    def step_unchecked(self, state: Any, inputs: Any, target: Any) -> tuple[Any, Any]:
        """One observation."""
        ...


def run(
    learner: Streamable,
    state: Any,
    inputs: Any,
    targets: Any,
    *,
    resets: Any = None,
    batch_size: int = 1,
) -> tuple[Any, Any]:
    """Learn from observations in order, each predicted before it is learned from.

    `inputs` is an array, or a pytree of arrays, with one row per observation; `targets` has shape (n,) for scalar
    families (labels are integers) and (n, d) for vector ones. The same as a loop over `learner.step`, in one
    `lax.scan`: returns the last state and all the `StepInfo`s, stacked. Where `resets` (n booleans) is true, a new
    sequence starts with that observation: the model's state starts again, all that was learned stays.

    With `batch_size` b, every b observations are one step: predicted and linearised at the same parameters, their
    Fisher matrices summed (the last batch takes what is left). Rates still count observations; for several epochs, call
    `run` again with the state it returned.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: must be at least 1, got {batch_size}")
    check_stream(learner.model, inputs, targets)
    boundaries = None if resets is None else check_resets(resets, len(targets))
    row = jax.tree.map(lambda leaf: leaf[0], inputs)
    state = learner.prepare(state, row)
    with explain_shapes(learner.model, state.params, state.carry, row):
        inputs, targets = jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets)
        if batch_size == 1:
            return _compiled(learner)(state, inputs, targets, boundaries)
        if not isinstance(learner, Learner):
            raise ValueError(f"batch_size: {type(learner).__name__} learns one observation at a time")
        check_batchable(learner)
        return _run_batches(learner, state, inputs, targets, batch_size)


@partial(jax.jit, static_argnums=0)
def scan(learner: Streamable, state: Any, inputs: Any, targets: Any, resets: Any = None) -> tuple[Any, Any]:
    """`run` on values already checked, for use inside other transformations."""

    def observe(state: Any, row: Any) -> tuple[Any, Any]:
        inputs, target, reset = row
        if reset is not None:
            state = jax.lax.cond(reset, learner.restart, lambda state: state, state)
        return learner.step_unchecked(state, inputs, target)

    return jax.lax.scan(observe, state, (inputs, targets, resets))


@lru_cache(maxsize=256)
def _compiled(learner: Streamable) -> Compact:
    return compact(partial(scan, learner))


def _run_batches(
    learner: Learner, state: LearnerState, inputs: Any, targets: Any, size: int
) -> tuple[LearnerState, StepInfo]:
    """Whole batches in one scan, then what is left."""
    infos = []
    whole = len(targets) // size * size
    for first, last, rows in ((0, whole, size), (whole, len(targets), len(targets) - whole)):
        if first == last:
            continue
        batches = jax.tree.map(
            lambda leaf, part=slice(first, last), rows=rows: leaf[part].reshape(-1, rows, *leaf.shape[1:]),
            (inputs, targets),
        )
        state, info = scan_batches(learner, state, *batches)
        infos.append(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), info))
    return state, jax.tree.map(lambda *parts: jnp.concatenate(parts), *infos)
