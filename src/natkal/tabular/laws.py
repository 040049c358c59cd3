"""What is predicted of each target: the family, its scale, and what a prediction says in the user's own units."""

import dataclasses
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

from natkal.families import Bernoulli, Categorical, Family, GaussianUnknownVariance, Poisson
from natkal.tabular.scaling import Running, location_scale
from natkal.tabular.schema import Target
from natkal.typing import Array, Float


class Outcome(NamedTuple):
    """A prediction in the user's units (`summary`, see each law) and log p of what came, both before learning it."""

    summary: Float[Array, " s"]
    log_prob: Float[Array, ""]


@runtime_checkable
class Law(Protocol):
    """One target: how its values reach the learner, and how the learner's prediction reaches the user."""

    @property
    def family(self) -> Family:
        """What the learner observes."""
        ...

    @property
    def summary_size(self) -> int:
        """How many numbers a prediction has."""
        ...

    def measure(self, y: Array) -> Array:
        """The number whose running mean and spread make the scale."""
        ...

    def prepare(self, y: Float[Array, ""], scale: Running) -> Float[Array, ""]:
        """The value the learner sees; NaN where it is missing or there is no scale for it yet."""
        ...

    def outcome(
        self, mean: Float[Array, " k"], cov: Float[Array, "k k"], log_prob: Array, y: Float[Array, ""], scale: Running
    ) -> Outcome:
        """What was expected, in the user's units, and how probable y was, from what the learner said of its own y."""
        ...


@dataclasses.dataclass(frozen=True)
class GaussianLaw:
    """A real target, or the logarithm of a positive one: standardised as it comes, its noise learned with its mean.

    The summary is (centre, spread) of the target or its logarithm; the spread holds noise and parameter uncertainty.
    """

    log: bool
    summary_size = 2

    @property
    def family(self) -> Family:
        """Mean and logarithm of the variance."""
        return GaussianUnknownVariance()

    def measure(self, y: Array) -> Array:
        """The number that is standardised."""
        return jnp.log(y) if self.log else y

    def prepare(self, y: Float[Array, ""], scale: Running) -> Float[Array, ""]:
        """(v - mean) / sd with the earlier rows' mean and sd."""
        location, spread = location_scale(scale)
        return (self.measure(y) - location) / spread

    def outcome(
        self, mean: Float[Array, " k"], cov: Float[Array, "k k"], log_prob: Array, y: Float[Array, ""], scale: Running
    ) -> Outcome:
        """Centre and spread in the user's units; the density changes by 1/sd, and by 1/y for a logarithm."""
        location, spread = location_scale(scale)
        density = log_prob - jnp.log(spread)
        return Outcome(
            summary=jnp.stack([location + spread * mean[0], spread * jnp.sqrt(cov[0, 0])]),
            log_prob=density - jnp.log(y) if self.log else density,
        )


@dataclasses.dataclass(frozen=True)
class ClassLaw:
    """Two classes or more; the summary is the probability of each (of the second, where there are two)."""

    classes: int

    @property
    def family(self) -> Family:
        """Bernoulli for two, Categorical with one logit per class for more."""
        return Bernoulli() if self.classes == 2 else Categorical(self.classes, minimal=False)

    @property
    def summary_size(self) -> int:
        """One probability for two classes."""
        return 1 if self.classes == 2 else self.classes

    def measure(self, y: Array) -> Array:
        """The class number."""
        return y

    def prepare(self, y: Float[Array, ""], scale: Running) -> Float[Array, ""]:
        """The class number."""
        return y

    def outcome(
        self, mean: Float[Array, " k"], cov: Float[Array, "k k"], log_prob: Array, y: Float[Array, ""], scale: Running
    ) -> Outcome:
        """Class probabilities."""
        return Outcome(summary=mean, log_prob=log_prob)


@dataclasses.dataclass(frozen=True)
class CountLaw:
    """Counts; the summary is (mean, spread), the spread with parameter uncertainty."""

    summary_size = 2

    @property
    def family(self) -> Family:
        """Poisson."""
        return Poisson()

    def measure(self, y: Array) -> Array:
        """The count."""
        return y

    def prepare(self, y: Float[Array, ""], scale: Running) -> Float[Array, ""]:
        """The count."""
        return y

    def outcome(
        self, mean: Float[Array, " k"], cov: Float[Array, "k k"], log_prob: Array, y: Float[Array, ""], scale: Running
    ) -> Outcome:
        """The mean count and its spread."""
        return Outcome(summary=jnp.stack([mean[0], jnp.sqrt(cov[0, 0])]), log_prob=log_prob)


def law_of(target: Target) -> Law:
    """The law of one target."""
    if target.classes:
        return ClassLaw(classes=len(target.classes))
    if target.task == "count":
        return CountLaw()
    return GaussianLaw(log=target.task == "positive")
