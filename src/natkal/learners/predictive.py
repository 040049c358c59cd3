"""Predictive laws built from one prediction: the same filter at several temperatures, dispersions or noise levels."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from natkal import linalg
from natkal.engine.distributions import count_cdf, gamma_cdf, matched_cdf, student_cdf, student_quantile
from natkal.engine.prediction import FilterPrediction
from natkal.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Family,
    Gamma,
    Gaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Weighted,
)
from natkal.families.base import Event, as_float
from natkal.typing import Array, Float

TEMPERATURES = (0.5, 0.7, 1.0, 1.4, 2.0)
DISPERSIONS = (0.3, 1.0, 3.0, 10.0, math.inf)
SHARPNESSES = (0.25, 0.5, 1.0, 2.0, 4.0)
NOISE_MEMORIES = (50.0, 2000.0)
NOISE_WIDTHS = (0.7, 1.0)
TRACKING_RATES = (0.0, 0.1, 0.5)
LARGEST_SURPRISE = 25.0
"""The most that one squared innovation counts for, in multiples of the usual one."""
LARGEST_LEVEL = 5.0
"""The most that one residual moves the level of a law that follows the residuals, in usual deviations."""


class Moments(NamedTuple):
    """Mean and covariance of T(y) under one law; the covariance is None where it follows from the mean (classes)."""

    mean: Float[Array, " k"]
    cov: Float[Array, "k k"] | None


@runtime_checkable
class Laws(Protocol):
    """Predictive laws made from one filter's prediction; a law is any pytree.

    `memory` is what was learned of the noise beside the filter. It has one entry for each member of a bank.
    """

    @property
    def count(self) -> int:
        """How many laws."""
        ...

    @property
    def unweighted(self) -> "Laws":
        """The laws of y itself, where observations come with a weight."""
        ...

    def start(self, dtype: Any) -> Any:
        """The memory before any observation."""
        ...

    def needed(self, prediction: Any) -> Any:
        """The prediction without what the laws do not look at."""
        ...

    def laws(self, memory: Any, prediction: Any, ahead: Any = 0) -> Any:
        """All laws, along a leading axis; `ahead` is how many observations lie between now and the predicted one."""
        ...

    def observe(self, memory: Any, prediction: Any, y: Event) -> Any:
        """The memory after y."""
        ...

    def log_prob(self, law: Any, y: Event) -> Float[Array, ""]:
        """Log p(y) under one law."""
        ...

    def moments(self, law: Any) -> Moments:
        """Mean and covariance under one law."""
        ...

    def cdf(self, law: Any, y: Float[Array, "*e"]) -> Float[Array, "*e"]:
        """P(Y <= y) under one law, entry by entry; classes have none."""
        ...

    def sample(self, law: Any, key: Array) -> Array:
        """One draw of y under one law."""
        ...

    def rescaled(self, law: Any, location: Array, scale: Array) -> Any:
        """The law of `location + scale y` where this one is the law of y."""
        ...

    def units(self, memory: Any, dtype: Any) -> Float[Array, " v"]:
        """For each law, the unit that the filter's parameters deviate in: that of the noise where it is learned."""
        ...

    def along(self, memory: Any, prediction: Any, y: Event) -> Any:
        """The memory after a y that was drawn and not observed: a level follows it, and nothing is learned."""
        ...

    def noise_variances(self, memory: Any) -> Any:
        """The noise variance of each law, in units of the filter's own; memories may be stacked along a first axis."""
        ...


class _Plain:
    """Laws of observations without a weight."""

    @property
    def unweighted(self) -> Any:
        """Themselves."""
        return self

    def needed(self, prediction: Any) -> Any:
        """All of it."""
        return prediction

    def noise_variances(self, memory: Any) -> Any:
        """The filter's own."""
        return 1.0


class _Memoryless(_Plain):
    """Laws that learn nothing of their own, of targets that are not rescaled."""

    count: Any

    def start(self, dtype: Any) -> tuple[()]:
        """Nothing."""
        return ()

    def observe(self, memory: tuple[()], prediction: Any, y: Event) -> tuple[()]:
        """Nothing to learn."""
        return memory

    def rescaled(self, law: Any, location: Array, scale: Array) -> Any:
        """The law itself: classes have no units."""
        return law

    def units(self, memory: tuple[()], dtype: Any) -> Float[Array, " v"]:
        """The parameters' own."""
        return jnp.ones(self.count, dtype)

    def along(self, memory: tuple[()], prediction: Any, y: Event) -> tuple[()]:
        """Nothing to follow."""
        return memory


class OwnLaw(NamedTuple):
    """A filter's own law: natural parameters, and the moments that parameter uncertainty makes wider."""

    natural: Float[Array, " k"]
    moments: Moments


@dataclasses.dataclass(frozen=True)
class PlugIn(_Memoryless):
    """The filter's own law and no other; quantiles are those of the law with its mean and covariance."""

    family: Family
    count = 1

    def needed(self, prediction: Any) -> Any:
        """Natural parameters and moments."""
        cov = None if self.family.support == "classes" else prediction.cov
        if cov is None and self.family.support != "classes":
            cov = self.family.cov(prediction.natural)
        return OwnLaw(natural=prediction.natural, moments=Moments(mean=prediction.mean, cov=cov))

    def laws(self, memory: tuple[()], prediction: Any, ahead: Any = 0) -> Any:
        """One."""
        return jax.tree.map(lambda leaf: leaf[None], prediction)

    def log_prob(self, law: OwnLaw, y: Event) -> Float[Array, ""]:
        """The family's."""
        return self.family.log_prob(law.natural, y)

    def moments(self, law: OwnLaw) -> Moments:
        """Noise and parameter uncertainty together."""
        return law.moments

    def cdf(self, law: OwnLaw, y: Array) -> Array:
        """That of the law with these moments."""
        assert law.moments.cov is not None
        mean, variance = law.moments.mean, jnp.diagonal(law.moments.cov)
        shape = jnp.shape(y)
        return matched_cdf(self.family.support, jnp.reshape(mean, shape), jnp.reshape(variance, shape), y)

    def sample(self, law: OwnLaw, key: Array) -> Array:
        """The family's."""
        return self.family.sample(key, law.natural)


@dataclasses.dataclass(frozen=True)
class Tempered(_Memoryless):
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


class Spread(NamedTuple):
    """A mean and a dispersion: r of a count, shape of a positive number."""

    mean: Float[Array, " k"]
    dispersion: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class SameMean(_Memoryless):
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


class Noise(NamedTuple):
    """What is left of the residuals: their level at each tracking rate, and for each rate and memory the discounted
    number of innovations around it and the sum of their squares in noise units.
    """

    level: Float[Array, "rates k"]
    heard: Float[Array, " memories"]
    squares: Float[Array, "rates memories"]


class StudentLaw(NamedTuple):
    """t with `freedom` degrees around `mean`, its scale matrix `width^2 cov`.

    `log_factors`: the logarithm of its density's constant factor for 0, 1, .. k entries that are there.
    """

    mean: Float[Array, " k"]
    cov: Float[Array, "k k"]
    width: Float[Array, ""]
    freedom: Float[Array, ""]
    log_factors: Float[Array, " k+1"]


@dataclasses.dataclass(frozen=True)
class Student(_Plain):
    """The noise variance of a Gaussian, learned by the conjugate rule (see the README).

    A law with a tracking rate adds the running level of the member's residuals to its mean: where the target wanders
    faster than the filter follows, it is followed at once.
    """

    memories: tuple[float, ...]
    widths: tuple[float, ...]
    rates: tuple[float, ...] = (0.0,)
    entries: int = 1

    @property
    def count(self) -> int:
        """Every rate with every memory and every width."""
        return len(self.rates) * len(self.memories) * len(self.widths)

    def start(self, dtype: Any) -> Noise:
        """As after one innovation of the size expected."""
        shape = (len(self.rates), len(self.memories))
        return Noise(
            level=jnp.zeros((len(self.rates), self.entries), dtype),
            heard=jnp.ones(len(self.memories), dtype),
            squares=jnp.ones(shape, dtype),
        )

    def needed(self, prediction: FilterPrediction) -> Moments:
        """Mean and covariance."""
        return Moments(prediction.mean, prediction.cov)

    def laws(self, memory: Noise, prediction: Moments, ahead: Any = 0) -> StudentLaw:
        """Each rate's mean with each memory's noise, at each width.

        A level that follows at rate a moves by a e with each observation: `ahead` of them add `ahead` a^2 to the
        variance, in units of the noise.
        """
        assert prediction.cov is not None
        shape = (len(self.rates), len(self.memories), len(self.widths))
        size = len(prediction.mean)
        means = prediction.mean[None] + memory.level
        # by memory alone: the logarithm of the gamma function costs more than all the rest of a law
        factors = _log_factors(memory.heard, size)
        covs = jnp.broadcast_to(prediction.cov, (len(self.rates), size, size))
        if not isinstance(ahead, int) or ahead:
            wandered = jnp.asarray(ahead, covs.dtype) * jnp.square(jnp.asarray(self.rates, covs.dtype))
            covs = covs + wandered[:, None, None] * jnp.eye(size, dtype=covs.dtype)[None]
        return StudentLaw(
            mean=jnp.broadcast_to(means[:, None, None], (*shape, size)).reshape(-1, size),
            cov=jnp.broadcast_to(covs[:, None, None], (*shape, size, size)).reshape(-1, size, size),
            width=self.units(memory, prediction.mean.dtype),
            freedom=jnp.broadcast_to(memory.heard[None, :, None], shape).ravel(),
            log_factors=jnp.broadcast_to(factors[None, :, None], (*shape, size + 1)).reshape(-1, size + 1),
        )

    def observe(self, memory: Noise, prediction: Moments, y: Event) -> Noise:
        """n <- d n + 1, sum <- d sum + e' Q^-1 e / k, level <- level + a e; what is missing says nothing."""
        assert prediction.cov is not None
        residual, cov, present = _present(prediction.mean, prediction.cov, y)
        errors = residual[None] - jnp.where(present[None], memory.level, 0.0)
        white = linalg.cholesky(cov).whiten(errors.T)
        surprise = jnp.sum(jnp.square(white), axis=0) / jnp.maximum(jnp.sum(present), 1)
        # one wild value widens the noise by a bounded factor; where such values keep coming it follows within a few
        usual = memory.squares / memory.heard[None]
        widest = LARGEST_LEVEL * jnp.sqrt(jnp.max(usual) * jnp.diagonal(cov))[None]
        surprise = jnp.minimum(surprise[:, None], LARGEST_SURPRISE * usual)
        discount = jnp.asarray([1 - 1 / span for span in self.memories], memory.heard.dtype)
        after = Noise(
            level=memory.level + jnp.asarray(self.rates, errors.dtype)[:, None] * jnp.clip(errors, -widest, widest),
            heard=discount * memory.heard + 1,
            squares=discount[None] * memory.squares + surprise,
        )
        told = jnp.any(present) & jnp.all(jnp.isfinite(surprise))
        return jax.tree.map(lambda new, old: jnp.where(told, new, old), after, memory)

    def units(self, memory: Noise, dtype: Any) -> Float[Array, " v"]:
        """The deviation of the noise, at each width."""
        scale = jnp.sqrt(memory.squares / memory.heard[None]).astype(dtype)
        return (scale[:, :, None] * jnp.asarray(self.widths, dtype)[None, None]).ravel()

    def along(self, memory: Noise, prediction: Moments, y: Event) -> Noise:
        """The levels follow; the size of the noise stays."""
        return memory._replace(level=self.observe(memory, prediction, y).level)

    def noise_variances(self, memory: Noise) -> Float[Array, "*m v"]:
        """Sum / n, the same for each width."""
        variances = memory.squares / memory.heard[..., None, :]
        return jnp.repeat(variances.reshape(*variances.shape[:-2], -1), len(self.widths), axis=-1)

    def log_prob(self, law: StudentLaw, y: Event) -> Float[Array, ""]:
        """Log t of the entries that are there."""
        residual, cov, present = _present(law.mean, law.cov, y)
        entries = jnp.sum(present)
        dims = entries.astype(law.mean.dtype)
        root = linalg.cholesky(cov)
        white = root.whiten(residual)
        largest = math.sqrt(float(jnp.finfo(white.dtype).max)) / 1e3
        square = jnp.sum(jnp.square(jnp.clip(white / law.width, -largest, largest)))
        return (
            law.log_factors[entries]
            - dims * jnp.log(law.width)
            - jnp.sum(jnp.log(root.diagonal()))
            - (law.freedom + dims) / 2 * jnp.log1p(square / law.freedom)
        )

    def moments(self, law: StudentLaw) -> Moments:
        """The variance of t where it has one; below 3 degrees of freedom, as with 3."""
        freedom = jnp.maximum(law.freedom, 3.0)
        return Moments(mean=law.mean, cov=law.cov * jnp.square(law.width) * freedom / (freedom - 2))

    def cdf(self, law: StudentLaw, y: Float[Array, "*e"]) -> Float[Array, "*e"]:
        """Of each entry by itself."""
        scale = law.width * jnp.sqrt(jnp.diagonal(law.cov))
        standard = (y - jnp.reshape(law.mean, jnp.shape(y))) / jnp.reshape(scale, jnp.shape(y))
        return student_cdf(standard, law.freedom)

    def sample(self, law: StudentLaw, key: Array) -> Array:
        """A normal draw over the root of a chi-squared one; of one entry, the quantile of a uniform draw."""
        if self.entries == 1:
            normal = jax.random.normal(key, law.mean.shape, law.mean.dtype)
            drawn = law.mean + law.width * jnp.sqrt(law.cov[0]) * student_quantile(normal, law.freedom)
            return drawn[0]
        noise_key, width_key = jax.random.split(key)
        noise = linalg.cholesky(law.cov).triangle() @ jax.random.normal(noise_key, law.mean.shape, law.mean.dtype)
        chi = 2 * jax.random.gamma(width_key, law.freedom / 2, dtype=law.mean.dtype) / law.freedom
        return law.mean + law.width * noise / jnp.sqrt(chi)

    def rescaled(self, law: StudentLaw, location: Array, scale: Array) -> StudentLaw:
        """Mean and scale matrix in other units, entry by entry."""
        factor = jnp.broadcast_to(jnp.reshape(scale, (-1,)), law.mean.shape)
        shift = jnp.broadcast_to(jnp.reshape(location, (-1,)), law.mean.shape)
        return law._replace(mean=shift + factor * law.mean, cov=factor[:, None] * law.cov * factor[None, :])


def student_law(mean: Float[Array, " k"], cov: Float[Array, "k k"], width: Any, freedom: Any) -> StudentLaw:
    """One such law by itself."""
    width, freedom = jnp.asarray(width, mean.dtype), jnp.asarray(freedom, mean.dtype)
    return StudentLaw(mean, cov, width, freedom, _log_factors(freedom[None], len(mean))[0])


def _log_factors(freedom: Float[Array, " n"], entries: int) -> Float[Array, "n d"]:
    """Log of Gamma((f + d)/2) / (Gamma(f/2) (f pi)^(d/2)) for d = 0 .. `entries`."""
    dims = jnp.arange(entries + 1, dtype=freedom.dtype)[None]
    freedom = freedom[:, None]
    return gammaln((freedom + dims) / 2) - gammaln(freedom / 2) - dims / 2 * jnp.log(freedom * jnp.pi)


@dataclasses.dataclass(frozen=True)
class Counted:
    """Another family's laws, for observations (y, w) that count w times: log p is w times theirs."""

    inner: Laws

    @property
    def unweighted(self) -> Laws:
        """The laws of y alone."""
        return self.inner

    @property
    def count(self) -> int:
        """As many."""
        return self.inner.count

    def start(self, dtype: Any) -> Any:
        """The same memory."""
        return self.inner.start(dtype)

    def needed(self, prediction: Any) -> Any:
        """The same."""
        return self.inner.needed(prediction)

    def laws(self, memory: Any, prediction: Any, ahead: Any = 0) -> Any:
        """The same laws."""
        return self.inner.laws(memory, prediction, ahead)

    def observe(self, memory: Any, prediction: Any, y: Event) -> Any:
        """The noise of y, whatever it counts for; nothing where it counts for nothing."""
        return self.inner.observe(memory, prediction, jnp.where(y[1] > 0, y[0], jnp.nan))

    def noise_variances(self, memory: Any) -> Any:
        """The inner laws'."""
        return self.inner.noise_variances(memory)

    def log_prob(self, law: Any, y: Event) -> Float[Array, ""]:
        """w log p(y)."""
        return y[1] * self.inner.log_prob(law, y[0])

    def moments(self, law: Any) -> Moments:
        """Of one observation that counts once."""
        return self.inner.moments(law)

    def cdf(self, law: Any, y: Array) -> Array:
        """P(Y <= y) of y itself."""
        return self.inner.cdf(law, y)

    def sample(self, law: Any, key: Array) -> Array:
        """One draw, of weight 1."""
        drawn = self.inner.sample(law, key)
        return jnp.stack([drawn, jnp.ones_like(drawn)])

    def rescaled(self, law: Any, location: Array, scale: Array) -> Any:
        """As the inner laws do."""
        return self.inner.rescaled(law, location, scale)

    def units(self, memory: Any, dtype: Any) -> Float[Array, " v"]:
        """As the inner laws do."""
        return self.inner.units(memory, dtype)

    def along(self, memory: Any, prediction: Any, y: Event) -> Any:
        """As the inner laws do, of y alone."""
        return self.inner.along(memory, prediction, y[0])


def _present(mean: Array, cov: Array, y: Event) -> tuple[Array, Array, Array]:
    """Residual, covariance and mask; missing entries become independent, of unit variance and free of error."""
    value = jnp.reshape(as_float(y, mean.dtype), mean.shape)
    present = ~jnp.isnan(value)
    both = present[:, None] & present[None, :]
    return jnp.where(present, value - mean, 0.0), jnp.where(both, cov, jnp.eye(len(mean), dtype=mean.dtype)), present


def laws_for(family: Family) -> Laws:
    """The predictive laws that suit a family."""
    match family:
        case Weighted():
            return Counted(laws_for(family.family))
        case Bernoulli() | Categorical() | Binomial() | Multinomial():
            return Tempered(family, TEMPERATURES)
        case Gaussian():
            return Student(NOISE_MEMORIES, NOISE_WIDTHS, TRACKING_RATES, family.dim)
        case Poisson() | NegativeBinomial():
            return SameMean(NegativeBinomial, Poisson(), DISPERSIONS, count_cdf)
        case Gamma():
            shapes = tuple(float(np.asarray(family.shape)) * sharpness for sharpness in SHARPNESSES)
            return SameMean(Gamma, None, shapes, gamma_cdf)
        case _:
            return PlugIn(family)
