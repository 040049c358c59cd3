"""Laws of counts and positive numbers: the same mean with several dispersions.

The mean is exp(raw), so that a filter that extrapolates a little far is wrong by a factor. A mean beyond
k = m + 2 sqrt(v), with m and v the mean and variance of all targets so far, is therefore trusted as far as such means
came true: it becomes k + b (mean - k). The slope b is that of a regression of y - k on mean - k through 0, over the
rows in which the member's mean was beyond k, with a prior at 0 that weighs as much as three rows at twice the distance
of k from m. It lies in [0, 1].
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.engine.prediction import FilterPrediction
from natkal.families import Family
from natkal.families.base import Event, as_float
from natkal.laws.base import Moments, Plain
from natkal.typing import Array, Float

FAR, PRIOR_ROWS, LARGEST_EXCESS = 2.0, 3.0, 10.0
"""Deviations from which on a mean is far; rows that the prior of the slope weighs; the most that a mean beyond counts
for, in distances of k from m.
"""


class Seen(NamedTuple):
    """The number of targets, their mean and the sum of squares around it; of far means the sums for the slope."""

    heard: Float[Array, ""]
    mean: Float[Array, ""]
    squares: Float[Array, ""]
    came: Float[Array, ""]
    said: Float[Array, ""]


class Spread(NamedTuple):
    """A mean and a dispersion: r of a count, shape of a positive number."""

    mean: Float[Array, " k"]
    dispersion: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class SameMean(Plain):
    """Laws with the member's mean and other dispersions.

    `least` is the least variance of targets of a mean, for the first rows.
    """

    law: Callable[[Array], Family]
    limit: Family | None
    dispersions: tuple[float, ...]
    distribution: Callable[[Array, Array, Array], Array]
    least: Callable[[Array], Array]

    @property
    def count(self) -> int:
        """One for each dispersion."""
        return len(self.dispersions)

    def needed(self, prediction: FilterPrediction) -> Float[Array, " k"]:
        """The mean."""
        return prediction.mean

    def start(self, dtype: Any) -> Seen:
        """Nothing seen."""
        return Seen(*(jnp.zeros((), dtype) for _ in Seen._fields))

    def laws(self, memory: Seen, prediction: Float[Array, " k"], ahead: Any = 0) -> Spread:
        """The member's mean as far as it is trusted, each dispersion."""
        far, distance = self._far(memory)
        slope = memory.came / (memory.said + PRIOR_ROWS * jnp.square(distance))
        trusted = far + jnp.clip(slope, 0.0, 1.0) * (prediction - far)
        mean = jnp.where((memory.heard > 0) & (prediction > far), trusted, prediction).astype(prediction.dtype)
        dispersions = jnp.asarray(self.dispersions, prediction.dtype)
        return Spread(mean=jnp.broadcast_to(mean, (self.count, *mean.shape)), dispersion=dispersions)

    def observe(self, memory: Seen, prediction: Float[Array, " k"], y: Event) -> Seen:
        """The target is counted; where the mean was far, what came of it."""
        value = jnp.reshape(as_float(y, memory.mean.dtype), ())
        far, distance = self._far(memory)
        excess = jnp.minimum(prediction[0].astype(far.dtype) - far, LARGEST_EXCESS * distance)
        excess = jnp.where(memory.heard > 0, jnp.maximum(excess, 0.0), 0.0)
        heard = memory.heard + 1
        away = value - memory.mean
        mean = memory.mean + away / heard
        after = Seen(
            heard=heard,
            mean=mean,
            squares=memory.squares + away * (value - mean),
            came=memory.came + excess * (value - far),
            said=memory.said + jnp.square(excess),
        )
        told = jnp.isfinite(value)
        return jax.tree.map(lambda new, old: jnp.where(told, new, old), after, memory)

    def _far(self, memory: Seen) -> tuple[Array, Array]:
        """From where on a mean is far, and how far that is from the mean of the targets."""
        variance = memory.squares / jnp.maximum(memory.heard, 1.0) + self.least(memory.mean)
        distance = FAR * jnp.sqrt(variance)
        return memory.mean + distance, distance

    def units(self, memory: Seen, dtype: Any) -> Float[Array, " v"]:
        """The parameters' own."""
        return jnp.ones(self.count, dtype)

    def along(self, memory: Seen, prediction: Float[Array, " k"], y: Event) -> Seen:
        """Nothing to follow."""
        return memory

    def in_units(self, memory: Seen, factor: Array) -> Seen:
        """All of it in the new unit, and of squares in its square."""
        one = jnp.reshape(factor, ()).astype(memory.mean.dtype)
        square = jnp.square(one)
        return Seen(
            memory.heard, memory.mean / one, memory.squares / square, memory.came / square, memory.said / square
        )

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
