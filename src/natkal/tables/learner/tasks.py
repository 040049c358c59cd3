"""Tasks: which family a target has, and how its values reach the learner and predictions reach the user.

A new task is one class here and one line in `TASKS`.
"""

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np

from natkal.banks.mixture import Mixture
from natkal.families import Bernoulli, Categorical, Family, Gaussian, Poisson, Weighted
from natkal.tables.engine.batch import TargetPrediction
from natkal.typing import Array

LEVEL = 0.9
"""Coverage of the intervals that are written and scored."""
HEAVIEST_MEMBERS, HEAVIEST_COUNTS = 2, 4
"""Limits and ranks are those of the members of largest weight, of counts those of the laws: each evaluation of a
distribution function costs time, and there are hundreds of laws.
"""
FARTHEST_LOG = 50.0
"""Limits of a positive number are at most e^50 times the centre: beyond that they say nothing."""


@runtime_checkable
class Task(Protocol):
    """One kind of target."""

    @property
    def family(self) -> Family:
        """The family of one observation (y, weight)."""
        ...

    @property
    def outputs(self) -> int:
        """How many numbers a network gives for it."""
        ...

    @property
    def classes(self) -> int:
        """How many classes there is room for; 0 for numbers."""
        ...

    @property
    def linear(self) -> bool:
        """Whether the learner's output is the value itself, in other units."""
        ...

    def to_learner(self, y: Array) -> Array:
        """The value as the learner's family takes it."""
        ...

    def from_learner(self, y: Array) -> Array:
        """The inverse of `to_learner`."""
        ...

    def outcome(
        self, prediction: Mixture, y: Array, classes: Array, *, level: Any, log_prob: Any = None
    ) -> TargetPrediction:
        """The prediction in the user's units, and how probable y was; `level` is the coverage of the limits or None.

        `classes` is how many classes are known, `log_prob` that of y as the learner takes it, where that was computed.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Number:
    """A real target, its noise learned; or, with `log`, a positive one through its logarithm."""

    log: bool = False
    outputs = 1
    classes = 0

    @property
    def family(self) -> Family:
        """Gaussian; its noise is learned beside the filters."""
        return NUMBER_FAMILY

    @property
    def linear(self) -> bool:
        """Unless the logarithm is learned."""
        return not self.log

    def to_learner(self, y: Array) -> Array:
        """The number or its logarithm."""
        return jnp.log(y) if self.log else y

    def from_learner(self, y: Array) -> Array:
        """The number itself; no larger than a double holds."""
        return jnp.exp(jnp.clip(y, -700.0, 700.0)) if self.log else y

    def outcome(
        self, prediction: Mixture, y: Array, classes: Array, *, level: Any, log_prob: Any = None
    ) -> TargetPrediction:
        """Mean (of a logarithm: the median), deviation and limits."""
        value = self.to_learner(y)
        known = ~jnp.isnan(y)
        filled = jnp.where(known, value, prediction.mean[0])
        log_prob = prediction.log_prob_one(filled) if log_prob is None else log_prob
        log_prob = log_prob - (value if self.log else 0.0)
        mean, spread = prediction.mean[0], jnp.sqrt(prediction.cov[0, 0])
        few = prediction.heaviest_members(HEAVIEST_MEMBERS)
        low, high = _limits(few, level)
        if self.log:
            farthest = jnp.minimum(FARTHEST_LOG, 10 * spread)
            low, high = (jnp.exp(jnp.clip(end, mean - farthest, mean + farthest)) for end in (low, high))
            mean, spread = jnp.exp(mean), jnp.exp(mean) * jnp.minimum(spread, FARTHEST_LOG)
        return _outcome(mean, spread, low, high, log_prob, few.cdf_one(filled), known)


@dataclasses.dataclass(frozen=True)
class Count:
    """Counts: Poisson filters, any dispersion around them."""

    outputs = 1
    classes = 0
    linear = False

    @property
    def family(self) -> Family:
        """Poisson."""
        return COUNT_FAMILY

    def to_learner(self, y: Array) -> Array:
        """The count."""
        return y

    def from_learner(self, y: Array) -> Array:
        """The count."""
        return y

    def outcome(
        self, prediction: Mixture, y: Array, classes: Array, *, level: Any, log_prob: Any = None
    ) -> TargetPrediction:
        """Mean, deviation and limits."""
        known = ~jnp.isnan(y)
        filled = jnp.where(known, y, 0.0)
        low, high = _limits(prediction, level)
        # the middle of the jump of the distribution function at y
        few = prediction.heaviest(HEAVIEST_COUNTS)
        rank = 0.5 * (few.cdf_one(filled) + few.cdf_one(filled - 1))
        spread = jnp.sqrt(prediction.cov[0, 0])
        log_prob = prediction.log_prob_one(filled) if log_prob is None else log_prob
        return _outcome(prediction.mean[0], spread, low, high, log_prob, rank, known)


@dataclasses.dataclass(frozen=True)
class Classes:
    """Up to `slots` classes, numbered as they were first seen.

    The outputs are log-odds against class 0, so that a class which appears later changes no other. Bernoulli's
    reference is its 0; Categorical's is its last label, so class i is its label i - 1, and class 0 its last.
    """

    slots: int
    linear = False

    @property
    def family(self) -> Family:
        """Bernoulli for two, Categorical for more."""
        return class_family(self.slots)

    @property
    def outputs(self) -> int:
        """Log-odds of every class but the first."""
        return self.slots - 1

    @property
    def classes(self) -> int:
        """As many as there are slots."""
        return self.slots

    def to_learner(self, y: Array) -> Array:
        """The family's own label of the class."""
        return y if self.slots == 2 else jnp.where(y == 0, self.slots - 1.0, y - 1)

    def from_learner(self, y: Array) -> Array:
        """The number of the class."""
        return y if self.slots == 2 else jnp.where(y == self.slots - 1, 0.0, y + 1)

    def outcome(
        self, prediction: Mixture, y: Array, classes: Array, *, level: Any, log_prob: Any = None
    ) -> TargetPrediction:
        """The probabilities of the classes, class 0 first; those that are not known yet have none."""
        known = ~jnp.isnan(y)
        own = prediction.probabilities_one()
        probabilities = own if self.slots == 2 else jnp.concatenate([own[-1:], own[:-1]])
        unknown = (jnp.arange(self.slots) >= classes) & (classes > 0)
        probabilities = jnp.where(unknown, 0.0, probabilities)
        probabilities = probabilities / jnp.sum(probabilities)
        label = jnp.where(known, y, 0.0).astype(jnp.int32)
        log_prob = jnp.log(probabilities[label])
        nothing = jnp.full((), jnp.nan, own.dtype)
        made = _outcome(nothing, nothing, nothing, nothing, log_prob, nothing, known)
        return made._replace(probabilities=probabilities)


_CLASS_FAMILIES: dict[int, Family] = {}


def class_family(slots: int) -> Family:
    """One family object for each number of slots, so that programs made of it are shared."""
    if slots not in _CLASS_FAMILIES:
        _CLASS_FAMILIES[slots] = Weighted(Bernoulli() if slots == 2 else Categorical(slots))
    return _CLASS_FAMILIES[slots]


NUMBER_FAMILY = Weighted(Gaussian(1.0))
COUNT_FAMILY = Weighted(Poisson())


def make_task(name: str, classes: int = 0) -> Task:
    """The task of this name, with room for so many classes."""
    if classes or name in ("binary", "multiclass"):
        return Classes(max(2, classes))
    if name == "count":
        return Count()
    return Number(log=name == "positive")


def point_of(task: str, outcome: Any) -> np.ndarray:
    """One value to bet on for each row: the number of the most probable class, or the point."""
    if task in ("binary", "multiclass"):
        return outcome.probabilities.argmax(axis=1).astype(np.float64)
    return outcome.value


def _limits(prediction: Mixture, level: Any) -> tuple[Any, Any]:
    """The ends of the central interval of this coverage, which may be traced; NaN where none is asked for."""
    if level is None:
        return jnp.nan, jnp.nan
    return prediction.quantile((1 - level) / 2), prediction.quantile((1 + level) / 2)


def _outcome(
    point: Any, spread: Any, low: Any, high: Any, log_prob: Array, rank: Any, known: Array
) -> TargetPrediction:
    dtype = log_prob.dtype
    numbers = [jnp.asarray(value, dtype) for value in (point, spread, low, high)]
    told = [jnp.where(known, jnp.asarray(value, dtype), jnp.nan) for value in (log_prob, rank)]
    return TargetPrediction(numbers[0], numbers[1], numbers[2], numbers[3], jnp.zeros(0, dtype), told[0], told[1])
