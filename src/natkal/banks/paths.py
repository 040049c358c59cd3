"""Possible futures drawn from a bank: the law of several steps where inputs are made of earlier targets.

A path is one member, one of its predictive laws and one draw of the member's parameters, followed for the whole
horizon: each drawn target goes into the inputs of the later steps. So a path has the uncertainty of which member is
right, of its parameters, of its memory and of the noise, and the steps of a path depend on each other as they should.

Members are drawn by systematic resampling: a member of weight w gets between floor(w n) and ceil(w n) of n rounds, w n
on average. A round is `TOGETHER` paths of one member side by side, with laws and parameters of their own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from natkal.banks.bank import Bank
from natkal.banks.state import BankState
from natkal.engine.checks import as_precision
from natkal.typing import Array, Float, Int

ROUNDS, TOGETHER = 32, 32


class Inputs(NamedTuple):
    """Where a path's inputs come from: `at(memory, step)`, and `memory` after each drawn target by `after`."""

    start: Callable[[Array], Any]
    at: Callable[[Any, Int[Array, ""]], Any]
    after: Callable[[Any, Int[Array, ""], Array], Any]


class Units(NamedTuple):
    """The user's units of a target: location + scale y."""

    location: Array
    scale: Array


def draw_paths(
    bank: Bank, state: BankState, key: Array, inputs: Inputs, horizon: int, units: Units | None, rounds: int = ROUNDS
) -> Float[Array, "n h *e"]:
    """`rounds * TOGETHER` draws of the next `horizon` targets, in the user's units."""
    choice_key, path_key = jax.random.split(key)
    log_weights = jnp.where(bank.running(state)[:, None], state.log_weights, -jnp.inf)
    chosen = _drawn_members(choice_key, jnp.exp(logsumexp(log_weights, axis=1)), rounds)

    def of_group(index: int) -> Callable[[Array, Array], Array]:
        group, members = bank.groups[index], state.members[index]
        first = sum(bank.sizes[:index])

        def some(member: Array, key: Array) -> Array:
            value, own = jax.tree.map(lambda leaf: jnp.asarray(leaf)[member - first], (group.values, members))
            noise = jax.tree.map(lambda leaf: leaf[member], state.noise)
            learner = group.make(value)

            def one(key: Array) -> Array:
                return _path(bank, learner, own, noise, log_weights[member], key, inputs, horizon, units)

            return jax.vmap(one)(jax.random.split(key, TOGETHER))

        return some

    branches = [of_group(index) for index in range(len(bank.groups))]
    ends = jnp.cumsum(jnp.asarray(bank.sizes))

    def one_round(row: tuple[Array, Array]) -> Array:
        member, key = row
        group = jnp.searchsorted(ends, member, side="right")
        return jax.lax.switch(group, branches, member, key) if len(branches) > 1 else branches[0](member, key)

    paths = jax.lax.map(one_round, (chosen, jax.random.split(path_key, rounds)))
    return paths.reshape(-1, *paths.shape[2:])


def _path(
    bank: Bank,
    learner: Any,
    own: Any,
    noise: Any,
    log_weights: Float[Array, " v"],
    key: Array,
    inputs: Inputs,
    horizon: int,
    units: Units | None,
) -> Array:
    laws = bank.laws.unweighted
    law_key, draw_key, start_key, step_key = jax.random.split(key, 4)
    law = jax.random.categorical(law_key, log_weights)
    dtype = log_weights.dtype

    def step(carried: tuple[Any, Any, Any], row: tuple[Array, Array]) -> tuple[tuple[Any, Any, Any], Array]:
        path, noise, memory = carried
        turn, key = row
        state_key, y_key = jax.random.split(key)
        unit = laws.units(noise, dtype)[law]
        path, made = learner.follow(own, path, inputs.at(memory, turn), unit, state_key)
        prediction = as_precision(dtype, laws.needed(made))
        expected = jax.tree.map(lambda leaf: leaf[law], laws.laws(noise, prediction))
        if units is not None:
            expected = laws.rescaled(expected, units.location, units.scale)
        y = laws.sample(expected, y_key)
        standard = y if units is None else (y - units.location) / units.scale
        after = (path, laws.along(noise, prediction, standard), inputs.after(memory, turn, y))
        return after, y

    start = (learner.start_path(own, draw_key), noise, inputs.start(start_key))
    turns = jnp.arange(horizon, dtype=jnp.int32)
    return jax.lax.scan(step, start, (turns, jax.random.split(step_key, horizon)))[1]


def _drawn_members(key: Array, weights: Float[Array, " m"], count: int) -> Int[Array, " n"]:
    """Systematic resampling: the members at (u + i)/n of the cumulated weights, i = 0 .. n - 1, u uniform."""
    places = (jax.random.uniform(key, dtype=weights.dtype) + jnp.arange(count, dtype=weights.dtype)) / count
    reached = jnp.cumsum(weights) / jnp.sum(weights)
    return jnp.minimum(jnp.searchsorted(reached, places, side="right"), len(weights) - 1)
