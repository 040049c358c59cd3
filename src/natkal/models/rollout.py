"""Several steps ahead: a transition unrolled, and its derivatives with respect to all that is uncertain."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.families.base import Family
from natkal.models.base import Feed, ravel_rows
from natkal.typing import Array, Float, Params

Transition = Callable[[Params, Array, Any, Array | None], tuple[Array, Array]]
"""`(params, s, u, noise) -> (s' + noise, raw)` on a flat state; raw is read from the disturbed state."""


class Unrolled(NamedTuple):
    """Raw outputs, their Jacobians with respect to theta and to the state now, and the covariance of all the rest."""

    raw: Float[Array, "h k"]
    by_params: Float[Array, "h k p"]
    by_start: Float[Array, "h k n"]
    noise: Float[Array, "h k k"] | None


def unroll(
    transition: Transition,
    outputs: Family,
    params: Params,
    start: Float[Array, " n"],
    inputs: Any,
    horizon: int,
    feed: Feed | None,
    process_noise: Float[Array, "n n"] | None = None,
) -> Unrolled:
    """The raw outputs as one function of theta, of the state now, and of the noise that enters at each step.

    Process noise Q enters the state, and with `feed` each observation's own noise enters the next input, as T(y):
    noise = sum_g B_g Q B_g' + sum_g C_g Cov[T(y_g)] C_g'.
    """
    count, dtype = horizon, jnp.result_type(*jax.tree.leaves(params))
    still = None if process_noise is None else jnp.zeros((count, len(start)), dtype)
    silent = None if feed is None else jnp.zeros((count, outputs.dim), dtype)

    def run(params: Params, start: Array, process: Array | None, observation: Array | None) -> Array:
        def step(carry: tuple[Array, Any], row: Any) -> tuple[tuple[Array, Any], Array]:
            before, fed = carry
            given, state_noise, output_noise = row
            after, raw = transition(params, before, given if feed is None else fed, state_noise)
            following = fed if feed is None else _like(feed(outputs.mean(outputs.link(raw)) + output_noise), fed)
            return (after, following), raw

        rows, first = (inputs, None) if feed is None else (None, inputs)
        return jax.lax.scan(step, (start, first), (rows, process, observation), length=count)[1]

    raw, vjp = jax.vjp(run, params, start, still, silent)
    covectors = jnp.eye(raw.size, dtype=raw.dtype).reshape(-1, *raw.shape)
    by_params, by_start, by_process, by_observation = jax.vmap(vjp)(covectors)
    parts = []
    if process_noise is not None:
        by_step = by_process.reshape(*raw.shape, *by_process.shape[1:])
        parts.append(jnp.einsum("hkgn,nm,hlgm->hkl", by_step, process_noise, by_step))
    if feed is not None:
        noises = jax.vmap(lambda raw: outputs.cov(outputs.link(raw)))(raw)
        by_step = by_observation.reshape(*raw.shape, *by_observation.shape[1:])
        parts.append(jnp.einsum("hkgt,gts,hlgs->hkl", by_step, noises, by_step))
    return Unrolled(
        raw=raw,
        by_params=ravel_rows(by_params).reshape(*raw.shape, -1),
        by_start=by_start.reshape(*raw.shape, -1),
        noise=sum(parts[1:], parts[0]) if parts else None,
    )


def _like(value: Any, example: Any) -> Any:
    """The output of `feed`, in the shape and dtype of the first input."""
    return jax.tree.map(lambda new, old: jnp.reshape(new, old.shape).astype(old.dtype), value, example)
