"""What is predicted: the stream's laws for numbers and counts, and classes that may grow in number."""

import dataclasses

import jax.numpy as jnp

from natkal.families import Bernoulli, Categorical, Family
from natkal.tabular.laws import CountLaw, GaussianLaw, Law, Outcome
from natkal.tabular.scaling import Running
from natkal.typing import Array, Float

NUMBER = GaussianLaw(log=False)
COUNT = CountLaw()


@dataclasses.dataclass(frozen=True)
class SlotLaw:
    """Up to `slots` classes, numbered as they were first seen; the summary is the probability of each.

    The natural parameters are log-odds against class 0. Bernoulli's reference is its 0; Categorical's is its last
    label, so class i is its label i - 1, and class 0 its last.
    """

    slots: int

    @property
    def family(self) -> Family:
        """Bernoulli for two, Categorical for more."""
        return Bernoulli() if self.slots == 2 else Categorical(self.slots)

    @property
    def summary_size(self) -> int:
        """A probability for each slot."""
        return self.slots

    def measure(self, y: Array) -> Array:
        """The class number."""
        return y

    def prepare(self, y: Float[Array, ""], scale: Running) -> Float[Array, ""]:
        """The family's own label for it."""
        return y if self.slots == 2 else (y - 1) % self.slots

    def outcome(
        self, mean: Float[Array, " k"], cov: Float[Array, "k k"], log_prob: Array, y: Float[Array, ""], scale: Running
    ) -> Outcome:
        """Class probabilities, class 0, the family's reference, first."""
        reference = jnp.maximum(1 - jnp.sum(mean, keepdims=True), 0.0)
        return Outcome(summary=jnp.concatenate([reference, mean]), log_prob=log_prob)


__all__ = ["COUNT", "NUMBER", "Law", "SlotLaw"]
