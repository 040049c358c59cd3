"""Laws of classes: the same log-odds at several temperatures."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from natkal.engine.prediction import FilterPrediction
from natkal.families import Family
from natkal.families.base import Event
from natkal.laws.base import Memoryless, Moments
from natkal.typing import Array, Float


@dataclasses.dataclass(frozen=True)
class Tempered(Memoryless):
    """The member's own law with natural parameters divided by T: bolder below 1, more careful above."""

    family: Family
    temperatures: tuple[float, ...]

    @property
    def count(self) -> int:
        """One for each temperature."""
        return len(self.temperatures)

    def needed(self, prediction: FilterPrediction) -> Float[Array, " k"]:
        """nu."""
        return prediction.natural

    def laws(self, memory: tuple[()], prediction: Float[Array, " k"], ahead: Any = 0) -> Float[Array, "v k"]:
        """nu / T."""
        return prediction[None] / jnp.asarray(self.temperatures, prediction.dtype)[:, None]

    def log_prob(self, law: Float[Array, " k"], y: Event) -> Float[Array, ""]:
        """The family's."""
        return self.family.log_prob(law, y)

    def moments(self, law: Float[Array, " k"]) -> Moments:
        """The family's."""
        follows = self.family.support == "classes"
        return Moments(mean=self.family.mean(law), cov=None if follows else self.family.cov(law))

    def cdf(self, law: Float[Array, " k"], y: Array) -> Array:
        """Refused: classes have no order."""
        raise ValueError(f"quantiles: {self.family} has none; use probabilities")

    def sample(self, law: Float[Array, " k"], key: Array) -> Array:
        """The family's."""
        return self.family.sample(key, law)
