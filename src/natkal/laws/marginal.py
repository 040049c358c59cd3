"""The law of a target that knows its own past and nothing else: what a mixture falls back on.

However wrong all members are, no row costs more than this law's loss and the logarithm of its share. All three have
heavy tails, so that this is a bound worth having:

    classes     -log p  <=  ln(2 n + K)                     frequencies (c + 1/2) / (n + K/2), n rows, K classes
    real        -log p   =  3/2 ln(1 + z^2 / 2) + ln s + const.     t with two degrees of freedom, z = (y - mean) / s
    counts, positive     P(Y >= y) = (1 + y / 2m)^-3, m the mean so far: mean m, variance 3 m^2, loss 4 ln y at the end
"""

import dataclasses
import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import jax.random
from jax.scipy.special import gammaln

from natkal.engine.distributions import student_cdf, student_quantile
from natkal.families import Family
from natkal.families.base import Event, as_float
from natkal.laws.base import Moments
from natkal.typing import Array, Float

FREEDOM = 2.0
"""Degrees of freedom of the law of real targets."""
TAIL = 3.0
"""The exponent of the tail of counts and positive numbers: the least whole one with a variance."""


@runtime_checkable
class Marginal(Protocol):
    """One law of y, made of a running memory of y alone."""

    def start(self, dtype: Any) -> Any:
        """The memory before any target."""
        ...

    def observe(self, memory: Any, y: Event, weight: Array) -> Any:
        """The memory after y, which counts `weight` times."""
        ...

    def law(self, memory: Any) -> Any:
        """The law of the next y."""
        ...

    def log_prob(self, law: Any, y: Event) -> Float[Array, ""]:
        """Log p(y)."""
        ...

    def moments(self, law: Any) -> Moments:
        """Mean and covariance of T(y)."""
        ...

    def cdf(self, law: Any, y: Float[Array, "*e"]) -> Float[Array, "*e"]:
        """P(Y <= y), entry by entry."""
        ...

    def sample(self, law: Any, key: Array) -> Array:
        """One draw of y."""
        ...

    def rescaled(self, law: Any, location: Array, scale: Array) -> Any:
        """The law of `location + scale y` where this one is the law of y."""
        ...

    def in_units(self, memory: Any, factor: Array) -> Any:
        """The same memory where the unit of y is `factor` times what it was."""
        ...


class Counts(NamedTuple):
    """The sum of T(y), and how many were observed."""

    sums: Float[Array, " k"]
    total: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Frequencies:
    """Frequencies of classes, half an observation of each beforehand (Krichevsky and Trofimov); a law is nu."""

    family: Family

    def start(self, dtype: Any) -> Counts:
        """None of any class."""
        return Counts(jnp.zeros(self.family.dim, dtype), jnp.zeros((), dtype))

    def observe(self, memory: Counts, y: Event, weight: Array) -> Counts:
        """One more of its class."""
        told = self.family.sufficient_statistic(y).astype(memory.sums.dtype)
        return Counts(memory.sums + weight * told, memory.total + weight)

    def law(self, memory: Counts) -> Float[Array, " k"]:
        """Nu of the frequencies."""
        halves = (self.family.dim + 1) / 2
        even = self.family.mean(jnp.zeros_like(memory.sums))
        return self.family.natural((memory.sums + halves * even) / (memory.total + halves))

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

    def rescaled(self, law: Float[Array, " k"], location: Array, scale: Array) -> Float[Array, " k"]:
        """The law itself: classes have no units."""
        return law

    def in_units(self, memory: Counts, factor: Array) -> Counts:
        """Nothing that has a unit."""
        return memory


class Running(NamedTuple):
    """How many targets there were, their mean and the sum of squares around it, entry by entry."""

    total: Float[Array, " k"]
    mean: Float[Array, " k"]
    squares: Float[Array, " k"]


class Placed(NamedTuple):
    """Where a law of numbers lies and how wide it is, entry by entry."""

    location: Float[Array, " k"]
    scale: Float[Array, " k"]


def _running(entries: int, dtype: Any) -> Running:
    return Running(*(jnp.zeros(entries, dtype) for _ in Running._fields))


def _add(memory: Running, y: Event, weight: Array) -> Running:
    """n <- n + w,  m <- m + w (y - m) / n,  S <- S + w (y - m_old)(y - m_new), without what is too large to square."""
    value = jnp.reshape(as_float(y, memory.mean.dtype), memory.mean.shape)
    before = value - memory.mean
    counts = jnp.where(jnp.isfinite(jnp.square(before)), weight, 0.0)
    before = jnp.where(counts > 0, before, 0.0)
    total = memory.total + counts
    step = before * counts / jnp.maximum(total, jnp.finfo(total.dtype).tiny)
    squares = memory.squares + counts * before * (before - step)
    return Running(total, memory.mean + step, jnp.where(jnp.isfinite(squares), squares, memory.squares))


def _rescaled_running(memory: Running, factor: Array) -> Running:
    each = jnp.reshape(factor, (-1,)).astype(memory.mean.dtype)
    return Running(memory.total, memory.mean / each, memory.squares / jnp.square(each))


@dataclasses.dataclass(frozen=True)
class RunningStudent:
    """Student's t around the mean of the targets, as wide as they spread, each entry by itself."""

    entries: int = 1

    def start(self, dtype: Any) -> Running:
        """None."""
        return _running(self.entries, dtype)

    def observe(self, memory: Running, y: Event, weight: Array) -> Running:
        """Moments; an entry that is missing says nothing."""
        return _add(memory, y, weight)

    def law(self, memory: Running) -> Placed:
        """Their deviation, and before there is one the size of the mean or 1."""
        deviation = jnp.sqrt(memory.squares / jnp.maximum(memory.total, 1.0))
        unknown = jnp.where(memory.mean != 0, jnp.abs(memory.mean), 1.0)
        known = deviation > jnp.finfo(deviation.dtype).eps * jnp.abs(memory.mean)
        return Placed(memory.mean, jnp.where(known, deviation, unknown))

    def log_prob(self, law: Placed, y: Event) -> Float[Array, ""]:
        """Of the entries that are there."""
        value = jnp.reshape(as_float(y, law.location.dtype), law.location.shape)
        z = jnp.abs(value - law.location) / law.scale
        # ln(1 + z^2 / f) without the square where that would not be finite
        far = z > 1e6
        bent = jnp.where(
            far,
            2 * jnp.log(jnp.where(far, z, 1.0)) - math.log(FREEDOM),
            jnp.log1p(jnp.square(jnp.where(far, 0.0, z)) / FREEDOM),
        )
        constant = gammaln((FREEDOM + 1) / 2) - gammaln(FREEDOM / 2) - 0.5 * math.log(FREEDOM * math.pi)
        each = constant - jnp.log(law.scale) - (FREEDOM + 1) / 2 * bent
        return jnp.sum(jnp.where(jnp.isnan(value), 0.0, each))

    def moments(self, law: Placed) -> Moments:
        """With two degrees there is no variance: as with 3, as the other laws do."""
        return Moments(mean=law.location, cov=jnp.diag(3.0 * jnp.square(law.scale)))

    def cdf(self, law: Placed, y: Float[Array, "*e"]) -> Float[Array, "*e"]:
        """Of each entry by itself."""
        shape = jnp.shape(y)
        standard = (y - jnp.reshape(law.location, shape)) / jnp.reshape(law.scale, shape)
        return student_cdf(standard, jnp.asarray(FREEDOM, law.scale.dtype))

    def sample(self, law: Placed, key: Array) -> Array:
        """The quantile of a uniform draw."""
        normal = jax.random.normal(key, law.location.shape, law.location.dtype)
        drawn = law.location + law.scale * student_quantile(normal, jnp.asarray(FREEDOM, law.scale.dtype))
        return drawn[0] if self.entries == 1 else drawn

    def rescaled(self, law: Placed, location: Array, scale: Array) -> Placed:
        """Entry by entry."""
        factor = jnp.broadcast_to(jnp.reshape(scale, (-1,)), law.location.shape)
        shift = jnp.broadcast_to(jnp.reshape(location, (-1,)), law.location.shape)
        return Placed(shift + factor * law.location, factor * law.scale)

    def in_units(self, memory: Running, factor: Array) -> Running:
        """Means in the new unit, squares in its square."""
        return _rescaled_running(memory, factor)


@dataclasses.dataclass(frozen=True)
class HeavyTailed:
    """Counts (`whole`) or positive numbers with P(Y >= y) = (1 + y / 2m)^-3, m their mean; a law is 2m."""

    whole: bool

    def start(self, dtype: Any) -> Running:
        """None."""
        return _running(1, dtype)

    def observe(self, memory: Running, y: Event, weight: Array) -> Running:
        """The mean follows."""
        return _add(memory, y, weight)

    def law(self, memory: Running) -> Float[Array, " 1"]:
        """2 m, with half a target of size 1 beforehand."""
        return 2 * (memory.total * memory.mean + 0.5) / (memory.total + 0.5)

    def log_prob(self, law: Float[Array, " 1"], y: Event) -> Float[Array, ""]:
        """Log of the fall of (1 + y / 2m)^-3 from y to y + 1, or of its slope."""
        value = jnp.reshape(as_float(y, law.dtype), ())
        start = -TAIL * jnp.log1p(value / law[0])
        if not self.whole:
            return start + math.log(TAIL) - jnp.log(law[0]) - jnp.log1p(value / law[0])
        # S(y) - S(y + 1) = S(y) (1 - (1 + 1 / (2m + y))^-3)
        return start + jnp.log(-jnp.expm1(-TAIL * jnp.log1p(1 / (law[0] + value))))

    def moments(self, law: Float[Array, " 1"]) -> Moments:
        """m and 3 m^2."""
        mean = law / (TAIL - 1)
        return Moments(mean=mean, cov=(TAIL / (TAIL - 2) * jnp.square(mean))[:, None])

    def cdf(self, law: Float[Array, " 1"], y: Float[Array, "*e"]) -> Float[Array, "*e"]:
        """1 - P(Y >= y + 1), or 1 - P(Y >= y)."""
        at = jnp.floor(y) + 1 if self.whole else y
        return jnp.where(at > 0, -jnp.expm1(-TAIL * jnp.log1p(jnp.maximum(at, 0.0) / law[0])), 0.0)

    def sample(self, law: Float[Array, " 1"], key: Array) -> Array:
        """2m (u^(-1/3) - 1)."""
        uniform = jax.random.uniform(key, (), law.dtype, jnp.finfo(law.dtype).tiny, 1.0)
        drawn = law[0] * jnp.expm1(-jnp.log(uniform) / TAIL)
        return jnp.floor(drawn) if self.whole else drawn

    def rescaled(self, law: Float[Array, " 1"], location: Array, scale: Array) -> Float[Array, " 1"]:
        """The same tail in other units."""
        return law * jnp.reshape(scale, (-1,))[0]

    def in_units(self, memory: Running, factor: Array) -> Running:
        """Means in the new unit."""
        return _rescaled_running(memory, factor)
