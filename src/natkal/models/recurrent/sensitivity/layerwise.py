"""Stacked diagonal cells: exact within each layer, and only through the present step from one layer to the next."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from natkal.models.base import ravel, ravel_rows
from natkal.models.recurrent.cells.layered import Stack
from natkal.models.recurrent.sensitivity.base import Sensitivity, no_start
from natkal.models.recurrent.sensitivity.traces import Trace, diagonal
from natkal.models.recurrent.system import Local, System
from natkal.typing import Array, Float, Params


class Layered(NamedTuple):
    """Each layer's own traces, and where the last step took place: weights, and the layers' states around it."""

    traces: tuple[tuple[Trace, ...], ...]
    weights: Params
    before: tuple[Any, ...]
    after: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Layerwise(Sensitivity):
    """G without what a layer remembers of the weights below it; build it with `layerwise`.

    With E_l = d x_l/d w_l of layer l alone (exact) and J_ml = d x_m'/d x_l' within one step,
    d x_m/d w_l = J_ml E_l: the term D_m (d x_m/d w_l) of the step before is dropped for m > l. A covector c is pulled
    down through the layers once, c_l = c'_l + sum_m c_m J_ml, and meets each layer's traces as in `diagonal`.
    """

    def init(self, system: System, start: Float[Array, "n p"] | None) -> Layered:
        """G_0 = 0."""
        no_start("layerwise", start)
        stack = _stack(system)
        weights = jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), system.dtype), system.params["cell"])
        rest = jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), system.dtype), system.state)
        traces = tuple(diagonal().init(part, None) for part in _parts(stack, weights))
        return Layered(traces=traces, weights=weights, before=rest, after=rest)

    def advance(self, system: System, state: Layered, local: Local) -> Layered:
        """Each layer's traces, at the input that the layers below give it now."""
        stack = _stack(system)
        weights = local.params["cell"]
        before = system.unravel_state(local.state)
        traces, after, driving = [], [], jnp.atleast_1d(local.inputs)
        for at, part in enumerate(_parts(stack, weights)):
            own = part.linearize(weights["layers"][at], ravel(before[at]), driving)
            traces.append(diagonal().advance(part, state.traces[at], own))
            after.append(part.unravel_state(own.next_state))
            if at < len(weights["maps"]):
                driving = stack.between(weights, at, after[at])
        return Layered(traces=tuple(traces), weights=weights, before=before, after=tuple(after))

    def rows(self, system: System, state: Layered, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ G: down through the layers, then each layer's traces."""
        disturb, taps = _disturbance(system, state)
        _, vjp = jax.vjp(disturb, taps, state.weights["maps"])
        reached, maps = jax.vmap(vjp)(covectors)
        parts = _parts(_stack(system), state.weights)
        layers = [
            jax.vmap(ravel_pytree(part.params)[1])(diagonal().rows(part, traces, own))
            for part, traces, own in zip(parts, state.traces, reached, strict=True)
        ]
        zeros = jax.tree.map(lambda leaf: jnp.zeros((len(covectors), *jnp.shape(leaf)), system.dtype), system.params)
        return ravel_rows({**zeros, "cell": {"layers": layers, "maps": maps}})

    def push(self, system: System, state: Layered, step: Float[Array, " p"]) -> Float[Array, " n"]:
        """G @ step: each layer's traces, then up through the layers."""
        disturb, taps = _disturbance(system, state)
        moved = ravel_pytree(system.params)[1](step)["cell"]
        tangents = [
            diagonal().push(part, traces, ravel(own))
            for part, traces, own in zip(
                _parts(_stack(system), state.weights), state.traces, moved["layers"], strict=True
            )
        ]
        return jax.jvp(disturb, (taps, state.weights["maps"]), (tangents, moved["maps"]))[1]


def _disturbance(system: System, state: Layered) -> tuple[Any, list[Array]]:
    """The states after the last step as a function of additions to each of them, and of the maps; and no addition."""
    stack = _stack(system)
    parts = _parts(_stack(system), state.weights)

    def disturb(taps: list[Array], maps: Params) -> Float[Array, " n"]:
        weights = {**state.weights, "maps": maps}
        after = [ravel(state.after[0]) + taps[0]]
        for at in range(1, len(parts)):
            driving = stack.between(weights, at - 1, parts[at - 1].unravel_state(after[at - 1]))
            own = parts[at].step(weights["layers"][at], ravel(state.before[at]), driving)
            after.append(own + taps[at])
        return jnp.concatenate(after)

    return disturb, [jnp.zeros(part.state_size, system.dtype) for part in parts]


def _stack(system: System) -> Stack:
    """The cell; an error where it is not a stack."""
    stack: Any = system.cell
    if getattr(stack, "layers", None) is None:
        raise ValueError(
            "sensitivity: layerwise() needs a cell of nk.cells.stack; use nk.sensitivity.rtrl() for this one"
        )
    return stack


def _parts(stack: Stack, weights: Params) -> list[System]:
    """Each layer as a cell of its own."""
    return [
        System(
            cell=layer.advance,
            params=own,
            state=layer.state(),
            owners=layer.weight_owners(own),
            wiring=layer.wiring,
        )
        for layer, own in zip(stack.layers, weights["layers"], strict=True)
    ]


def layerwise() -> Layerwise:
    """For `nk.cells.stack` of diagonal cells: linear in the parameters, exact within each layer. Biased.

    The weights of a layer act on the layers above through the present step alone (Zucchet et al., arXiv:2305.15947).
    Exact for the weights of the last layer, so for a stack of one.
    """
    return Layerwise()
