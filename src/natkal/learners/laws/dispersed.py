"""Laws of counts and positive numbers: the same mean with several dispersions."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from natkal.engine.prediction import FilterPrediction
from natkal.families import Family
from natkal.families.base import Event, as_float
from natkal.learners.laws.base import Memoryless, Moments
from natkal.typing import Array, Float


class Spread(NamedTuple):
    """A mean and a dispersion: r of a count, shape of a positive number."""

    mean: Float[Array, " k"]
    dispersion: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class SameMean(Memoryless):
    """Laws with the member's mean and other dispersions."""

    law: Callable[[Array], Family]
    limit: Family | None
    dispersions: tuple[float, ...]
    distribution: Callable[[Array, Array, Array], Array]

    @property
    def count(self) -> int:
        """One for each dispersion."""
        return len(self.dispersions)

    def needed(self, prediction: FilterPrediction) -> Float[Array, " k"]:
        """The mean."""
        return prediction.mean

    def laws(self, memory: tuple[()], prediction: Float[Array, " k"], ahead: Any = 0) -> Spread:
        """The member's mean, each dispersion."""
        dispersions = jnp.asarray(self.dispersions, prediction.dtype)
        return Spread(mean=jnp.broadcast_to(prediction, (self.count, *prediction.shape)), dispersion=dispersions)

    def log_prob(self, law: Spread, y: Event) -> Float[Array, ""]:
        """That of the law of this dispersion; the limiting law where it is infinite."""
        return self._choose(law, lambda family: family.log_prob(family.natural(law.mean), y))

    def moments(self, law: Spread) -> Moments:
        """The mean stays, the covariance follows the dispersion."""
        return Moments(mean=law.mean, cov=self._choose(law, lambda family: family.cov(family.natural(law.mean))))

    def cdf(self, law: Spread, y: Float[Array, "*e"]) -> Float[Array, "*e"]:
        """By incomplete beta and gamma functions."""
        return self.distribution(law.mean[0], law.dispersion, y)

    def sample(self, law: Spread, key: Array) -> Array:
        """A draw of the law of this dispersion."""
        return self._choose(law, lambda family: as_float(family.sample(key, family.natural(law.mean)), law.mean.dtype))

    def rescaled(self, law: Spread, location: Array, scale: Array) -> Spread:
        """The mean in other units; the dispersion has none."""
        return Spread(mean=law.mean * scale, dispersion=law.dispersion)

    def _choose(self, law: Spread, compute: Callable[[Family], Array]) -> Array:
        if self.limit is None:
            return compute(self.law(law.dispersion))
        infinite = jnp.isinf(law.dispersion)
        return jnp.where(infinite, compute(self.limit), compute(self.law(jnp.where(infinite, 1.0, law.dispersion))))
