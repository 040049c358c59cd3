"""Learners that differ in numbers only, run as one under `vmap`."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine import KalmanLearner, Learner
from natkal.engine.rates import Fading
from natkal.families.base import Family
from natkal.typing import Array, Bool, Int, Params


class RunningMembers(NamedTuple):
    """Which members of a group run: the first `running` of `order`."""

    order: Int[Array, " m"]
    running: Int[Array, ""]

    def mask(self) -> Bool[Array, " m"]:
        """For each member, whether it runs."""
        members = jnp.arange(len(self.order), dtype=jnp.int32)
        return jnp.any((self.order[None] == members[:, None]) & (members < self.running)[None], axis=1)


def entry(leaf: Array, place: Array) -> Array:
    """`leaf[place]` for a place that is not negative, in one operation."""
    return jax.lax.dynamic_index_in_dim(leaf, place, keepdims=False, allow_negative_indices=False)


def with_entry(leaf: Array, place: Array, value: Array) -> Array:
    """`leaf.at[place].set(value)` for a place that is not negative, in one operation."""
    return jax.lax.dynamic_update_index_in_dim(leaf, value, place, 0, allow_negative_indices=False)


def map_running(function: Callable[..., Any], running: RunningMembers, kept: Any, *stacked: Any) -> Any:
    """`function(kept, *parts) -> (kept, told)` for the members that run, one after the other.

    A loop whose length is data: a member that does not run costs nothing, keeps its part and tells zeros, and starting
    or stopping one compiles nothing.
    """

    @jax.jit  # traced once, for its shapes and for the loop
    def one(member: Array, kept: Any) -> Any:
        return function(*jax.tree.map(lambda leaf: entry(leaf, member), (kept, *stacked)))

    shapes = jax.eval_shape(one, jnp.zeros((), jnp.int32), kept)[1]
    silent = jax.tree.map(lambda leaf: jnp.zeros((len(running.order), *leaf.shape), leaf.dtype), shapes)

    def body(turn: Array, carried: Any) -> Any:
        member = entry(running.order, turn)
        return jax.tree.map(lambda whole, part: with_entry(whole, member, part), carried, one(member, carried[0]))

    return jax.lax.fori_loop(0, running.running, body, (kept, silent))


def joined(parts: Sequence[Any]) -> Any:
    """What is stacked over the members of each group, stacked over all members."""
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """`make(value)` for each row of `values`: learners of one structure. `values` is a pytree of arrays (m, ..)."""

    make: Callable[[Any], Learner]
    values: Any
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many members."""
        return len(jax.tree.leaves(self.values)[0])

    @functools.cached_property
    def first(self) -> Learner:
        """The first member, for what all of them share."""
        return self.learner(0)

    def learner(self, member: int) -> Learner:
        """One of them, by itself."""
        return self.make(jax.tree.map(lambda leaf: np.asarray(leaf)[member], self.values))

    def init(self, params: Params | None, keys: Array) -> Any:
        """Every member at `params`."""
        return jax.vmap(lambda value, key: self.make(value).init(params, key))(self.values, keys)

    def map(self, function: Callable[..., Any], *stacked: Any) -> Any:
        """`function(learner, *parts)` for every member, with its own part of each stacked pytree."""
        return jax.vmap(lambda value, *parts: function(self.make(value), *parts))(self.values, *stacked)

    def map_running(self, function: Callable[..., Any], running: RunningMembers, kept: Any, *stacked: Any) -> Any:
        """`function(learner, kept, *parts) -> (kept, told)` for the members that run (see above)."""
        values = jax.tree.map(jnp.asarray, self.values)
        call = lambda kept, value, *parts: function(self.make(value), kept, *parts)  # noqa: E731
        return map_running(call, running, kept, values, *stacked)

    def take(self, members: Sequence[int]) -> "Group":
        """Some of the members."""
        values = jax.tree.map(lambda leaf: leaf[np.asarray(members)], self.values)
        names = tuple(self.names[member] for member in members if self.names)
        return dataclasses.replace(self, values=values, names=names)


def families_of(groups: Sequence[Group]) -> list[Family]:
    """The law of an observation as each group names it; a learner need not name one."""
    named = [getattr(group.first, "outputs", None) for group in groups]
    return [family for family in named if family is not None]


def from_grid(make: Callable[..., Learner], grid: Mapping[str, Sequence[Any]]) -> Group:
    """`make(**point)` for every point of the grid, the last name moving fastest."""
    if not grid or not all(len(values) for values in grid.values()):
        raise ValueError("grid: needs at least one name, and at least one value for each")
    points = [dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values())]
    for point in points:  # say what is wrong with a value now, in the learner's own words
        make(**point)
    values = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, float) for leaf in leaves]), *points)
    return Group(make=lambda point: make(**point), values=values)


def from_learners(learners: Sequence[Learner]) -> tuple[Group, ...]:
    """Groups of learners that differ only in numbers, in the order in which each group first appears."""
    if not learners:
        raise ValueError("learners: a bank needs at least one")
    groups: list[list[Learner]] = []
    for learner in learners:
        alike = next((group for group in groups if _differ_in_numbers(group[0], learner)), None)
        if alike is None:
            groups.append([learner])
        else:
            alike.append(learner)
    return tuple(_stacked(group) for group in groups)


def _stacked(learners: Sequence[Any]) -> Group:
    """Learners of one structure; a learner that natkal does not know is a group of its own."""
    first = learners[0]
    if not isinstance(first, KalmanLearner):
        return Group(make=lambda value: first, values=np.zeros(1))

    def make(value: Any) -> Learner:
        rates = Fading(amount=value["fading"]) if "fading" in value else first.rates
        return dataclasses.replace(
            first, prior_cov=value["prior_cov"], rates=rates, prior_weight=value.get("prior_weight")
        )

    values = [_numbers(learner) for learner in learners]
    return Group(make=make, values=jax.tree.map(lambda *leaves: jnp.stack(jnp.asarray(leaves)), *values))


def _numbers(learner: KalmanLearner) -> dict[str, Any]:
    """The settings that may differ within a group."""
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), learner.prior_cov)
    values = {"prior_cov": prior}
    if _constant_fading(learner):
        values["fading"] = jnp.asarray(learner.rates.amount, float)  # pyright: ignore[reportAttributeAccessIssue]
    if learner.prior_weight is not None:
        values["prior_weight"] = jnp.asarray(learner.prior_weight, float)
    return values


def _constant_fading(learner: KalmanLearner) -> bool:
    return isinstance(learner.rates, Fading) and not callable(learner.rates.amount)


def _differ_in_numbers(one: Any, other: Any) -> bool:
    """Whether two learners are filters of one model that differ in numbers alone."""
    if not (isinstance(one, KalmanLearner) and isinstance(other, KalmanLearner)) or one.model is not other.model:
        return False
    if one.prior_cov is None or other.prior_cov is None:
        return False
    if not (_constant_fading(one) and _constant_fading(other)) and one.rates is not other.rates:
        return False
    alike = all(getattr(one, name) == getattr(other, name) for name in ("curvature", "fisher", "control", "robust"))
    first, second = _numbers(one), _numbers(other)
    return (
        alike
        and jax.tree.structure(first) == jax.tree.structure(second)
        and all(a.shape == b.shape for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))
    )
