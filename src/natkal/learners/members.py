"""Learners that differ in numbers only, run as one under `vmap`."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine import Learner, LearnerState, StepInfo, counter
from natkal.engine.rates import Fading
from natkal.typing import Array, Float, Params


class Stepped(NamedTuple):
    """What one observation did to each member, `keep` being the share of old evidence it kept."""

    states: LearnerState
    infos: StepInfo
    keep: Float[Array, " m"]


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """`make(value)` for each row of `values`: learners of one structure. `values` is a pytree of arrays (m, ..)."""

    make: Callable[[Any], Learner]
    values: Any

    @property
    def size(self) -> int:
        """How many members."""
        return len(jax.tree.leaves(self.values)[0])

    def learner(self, member: int) -> Learner:
        """One of them, by itself."""
        return self.make(jax.tree.map(lambda leaf: leaf[member], self.values))

    def init(self, params: Params, keys: Array) -> LearnerState:
        """Every member at `params`."""
        return jax.vmap(lambda value, key: self.make(value).init(params, key))(self.values, keys)

    def step(self, states: LearnerState, inputs: Any, target: Any) -> Stepped:
        """Every member takes its own step."""

        def one(value: Any, state: LearnerState) -> Stepped:
            learner = self.make(value)
            new, info = learner.step_unchecked(state, inputs, target)
            count = counter.value(counter.increment(state.steps), info.log_prob.dtype)
            return Stepped(states=new, infos=info, keep=learner.rate(count, info.observed).keep)

        return jax.vmap(one)(self.values, states)

    def predict(self, states: LearnerState, inputs: Any) -> Any:
        """Every member's prediction."""
        return jax.vmap(lambda value, state: self.make(value).predict_unchecked(state, inputs))(self.values, states)

    def restart(self, states: LearnerState) -> LearnerState:
        """Every member at the start of a new sequence."""
        return jax.vmap(lambda value, state: self.make(value).restart(state))(self.values, states)

    def take(self, members: Sequence[int]) -> "Group":
        """Some of the members."""
        return Group(make=self.make, values=jax.tree.map(lambda leaf: leaf[np.asarray(members)], self.values))


def from_grid(make: Callable[..., Learner], grid: Mapping[str, Sequence[Any]]) -> Group:
    """`make(**point)` for every point of the grid, the last name moving fastest."""
    if not grid or not all(len(values) for values in grid.values()):
        raise ValueError("grid: needs at least one name, and at least one value for each")
    points = [dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values())]
    for point in points:  # say what is wrong with a value now, in the learner's own words
        make(**point)
    values = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, float) for leaf in leaves]), *points)
    return Group(make=lambda point: make(**point), values=values)


def from_learners(learners: Sequence[Any]) -> tuple[Group, ...]:
    """Groups of learners that differ only in numbers, in the order in which each group first appears."""
    if not learners:
        raise ValueError("learners: a bank needs at least one")
    for learner in learners:
        if not isinstance(learner, Learner):
            raise ValueError(f"learners: {type(learner).__name__} is not a learner made by online")
        if learner.model is not learners[0].model:
            raise ValueError("learners: all members of a bank share one model")
    kinds: list[list[int]] = []
    for index, learner in enumerate(learners):
        for kind in kinds:
            if _same_structure(learners[kind[0]], learner):
                kind.append(index)
                break
        else:
            kinds.append([index])
    return tuple(_stack([learners[index] for index in kind]) for kind in kinds)


def _stack(learners: Sequence[Learner]) -> Group:
    first = learners[0]

    def make(value: Any) -> Learner:
        rates = Fading(amount=value["fading"]) if "fading" in value else first.rates
        return dataclasses.replace(
            first, prior_cov=value["prior_cov"], rates=rates, prior_weight=value.get("prior_weight")
        )

    values = [_numbers(learner) for learner in learners]
    return Group(make=make, values=jax.tree.map(lambda *leaves: jnp.stack(jnp.asarray(leaves)), *values))


def _numbers(learner: Learner) -> dict[str, Any]:
    """What may differ within a group."""
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), learner.prior_cov)
    values = {"prior_cov": prior}
    if _constant_fading(learner):
        values["fading"] = jnp.asarray(learner.rates.amount, float)  # pyright: ignore[reportAttributeAccessIssue]
    if learner.prior_weight is not None:
        values["prior_weight"] = jnp.asarray(learner.prior_weight, float)
    return values


def _constant_fading(learner: Learner) -> bool:
    return isinstance(learner.rates, Fading) and not callable(learner.rates.amount)


def _same_structure(one: Learner, other: Learner) -> bool:
    """Whether two learners differ in numbers alone."""
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
