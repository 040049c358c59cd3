"""A stream through a learner: one scan."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar, cast

import jax
import jax.numpy as jnp

from natkal.compiling.policy import CompiledLoop, compile_loop, inside_transformation
from natkal.engine.batch import check_batchable, scan_batches
from natkal.engine.protocol import Info_co, Learner, Stepping
from natkal.engine.state import StepInfo
from natkal.stream.checks import as_arrays, check_learner, check_resets, check_stream, explain_shapes, explain_state
from natkal.stream.progress import reporter

Keep = Literal["all", "log_prob", "nothing"]
Callback = Callable[[int, Any, Any], None]
State = TypeVar("State")


def run(
    learner: Stepping[Info_co],
    state: State,
    inputs: Any,
    targets: Any,
    *,
    resets: Any = None,
    batch_size: int = 1,
    keep: Keep = "all",
    progress: bool = False,
    callback: Callback | None = None,
    every: int = 1000,
) -> tuple[State, Info_co]:
    """Learn from observations in order, each predicted before it is learned from.

    `inputs` is an array, or a pytree of arrays, with one row per observation; `targets` has shape (n,) for scalar
    families (labels are integers) and (n, d) for vector ones. The same as a loop over `learner.step`, in one
    `lax.scan`: returns the last state and all the `StepInfo`s, stacked. Where `resets` (n booleans) is true, a new
    sequence starts with that observation: the model's state starts again, all that was learned stays.

    `keep` says what is returned of the `StepInfo`s: all of it, the log probabilities with the flags, or nothing (the
    fields left out are None). `progress` shows rows, rate and loss on standard error. `callback(rows, state, info)` is
    called after every `every` rows with the state and the stacked info of those rows.

    With `batch_size` b, every b observations are one step: predicted and linearised at the same parameters, their
    Fisher matrices summed (the last batch takes what is left). Rates still count observations; for several epochs, call
    `run` again with the state it returned.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: must be at least 1, got {batch_size}")
    if keep not in ("all", "log_prob", "nothing"):
        raise ValueError(f'keep: must be "all", "log_prob" or "nothing", got {keep!r}')
    check_learner(learner, state)
    return _run(cast(Learner, learner), state, inputs, targets, resets, batch_size, keep, progress, callback, every)


def _run(
    learner: Learner,
    state: Any,
    inputs: Any,
    targets: Any,
    resets: Any,
    batch_size: int,
    keep: Keep,
    progress: bool,
    callback: Callback | None,
    every: int,
) -> tuple[Any, Any]:
    inputs, targets = as_arrays(inputs, targets)
    check_stream(learner, inputs, targets)
    boundaries = None if resets is None else check_resets(resets, len(targets))
    row = jax.tree.map(lambda leaf: leaf[0], inputs) if len(targets) else inputs
    inputs, targets = jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets)
    with explain_state(learner, state), explain_shapes(lambda row: learner.predict(state, row), row):
        if batch_size > 1:
            check_batchable(learner)
            state, info = _run_batches(learner, state, inputs, targets, batch_size)
            return state, _kept(info, keep)
        if (progress or callback is not None) and not inside_transformation(state, inputs, targets):
            return _in_parts(learner, state, (inputs, targets, boundaries), keep, progress, callback, every)
        return _compiled(learner, keep)(state, inputs, targets, boundaries)


def scan(learner: Learner, keep: Keep, state: Any, inputs: Any, targets: Any, resets: Any = None) -> tuple[Any, Any]:
    """`run` on values already checked, for use inside other transformations."""

    def observe(state: Any, row: Any) -> tuple[Any, Any]:
        inputs, target, reset = row
        if reset is not None:
            state = jax.lax.cond(reset, learner.restart, lambda state: state, state)
        state, info = learner.step(state, inputs, target)
        return state, _kept(info, keep)

    return jax.lax.scan(observe, state, (inputs, targets, resets))


@lru_cache(maxsize=256)
def _compiled(learner: Learner, keep: Keep) -> CompiledLoop:
    return compile_loop(partial(scan, learner, keep))


def _kept(info: Any, keep: Keep) -> Any:
    """The part of a `StepInfo` that is asked for."""
    if keep == "all":
        return info
    nothing: Any = None
    if keep == "nothing":
        return StepInfo(*[nothing] * len(StepInfo._fields))
    return StepInfo(info.log_prob, nothing, info.observed, info.accepted, nothing, nothing, nothing)  # pyright: ignore[reportArgumentType]


def _in_parts(
    learner: Learner, state: Any, rows: Any, keep: Keep, progress: bool, callback: Callback | None, every: int
) -> tuple[Any, Any]:
    """The same scan, cut into parts of `every` rows, so that somebody can look on."""
    if every < 1:
        raise ValueError(f"every: must be at least 1, got {every}")
    count, infos = len(rows[1]), []
    loop = _compiled(learner, keep)
    with reporter(count, shown=progress) as show:
        for first in range(0, count, every):
            part = jax.tree.map(lambda leaf, first=first: leaf[first : first + every], rows)
            state, info = loop(state, *part)
            infos.append(info)
            done = first + len(part[1])
            show(done, info.log_prob)
            if callback is not None:
                callback(done, state, info)
    return state, jax.tree.map(lambda *parts: jnp.concatenate(parts), *infos)


def _run_batches(learner: Any, state: Any, inputs: Any, targets: Any, size: int) -> tuple[Any, Any]:
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
