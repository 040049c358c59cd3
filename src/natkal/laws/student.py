"""Laws of numbers whose noise is learned beside the filter: Student's t at several memories and widths."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from natkal import linalg
from natkal.engine.distributions import student_cdf, student_quantile
from natkal.engine.prediction import FilterPrediction
from natkal.families.base import Event, as_float
from natkal.laws.base import Moments, Plain
from natkal.typing import Array, Float

LARGEST_SURPRISE = 25.0
"""The most that one squared innovation counts for, in multiples of the usual one."""
LARGEST_LEVEL = 3.0
"""The most that one residual moves the level of a law that follows the residuals, in usual deviations."""
HEAVY_FREEDOM = 2.0
"""Degrees of freedom of a law with heavy tails: in it an outlier of 100 deviations costs 13 nats and not 5,000."""
QUICK_FREEDOM = 8.0
"""Degrees of freedom at most of a law that follows the noise of the last few rows; no more than these rows."""
WIDTHS_FROM = 100.0
"""The shortest memory, in rows, whose laws have several widths: a shorter one follows the noise by itself."""
QUIETEST = 1e-6
"""The least variance of such a law, in multiples of the lasting one: after a long pause it is soon back."""


class Noise(NamedTuple):
    """What is left of the residuals: their level at each tracking rate, and for each rate and memory the discounted
    number of innovations around it and the sum of their squares in noise units. Heavy memories come after the plain
    ones, quick ones last.
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
class Student(Plain):
    """The noise variance of a Gaussian, learned by the conjugate rule (see the README).

    A law with a tracking rate adds the running level of the member's residuals to its mean: where the target wanders
    faster than the filter follows, it is followed at once.

    `heavy` are memories of laws with HEAVY_FREEDOM f degrees of freedom. Their scale is the maximum-likelihood
    one of such a t: an innovation of surprise d counts for (f + 1) d / (f s2 + d) s2, whatever its size f + 1 times the
    usual one at most (Lange, Little and Taylor 1989).

    `quick` are memories of a few rows, for noise that comes in bursts, with QUICK_FREEDOM degrees of freedom at most
    and the same rule for the scale. Laws of these and of other memories below WIDTHS_FROM have one width, 1.
    """

    memories: tuple[float, ...]
    widths: tuple[float, ...]
    rates: tuple[float, ...] = (0.0,)
    entries: int = 1
    heavy: tuple[float, ...] = ()
    quick: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        """Every rate with every memory and every width of its laws."""
        return len(self.rates) * sum(len(widths) for widths in self._widths)

    @property
    def _memories(self) -> tuple[float, ...]:
        return (*self.memories, *self.heavy, *self.quick)

    @property
    def _lasting(self) -> int:
        """How many memories are not quick."""
        return len(self.memories) + len(self.heavy)

    @property
    def _robust(self) -> np.ndarray:
        """The freedom f of the rule for the scale of each memory; infinite for the conjugate rule."""
        counts = (len(self.memories), len(self.heavy), len(self.quick))
        return np.repeat([np.inf, HEAVY_FREEDOM, QUICK_FREEDOM], counts)

    def _freedom(
        self, heard: Float[Array, " memories"], entries: int
    ) -> tuple[Float[Array, " memories"], Float[Array, "memories d"]]:
        """Degrees of freedom: as many as innovations were heard, constant for heavy and quick laws; `_log_factors`.

        By memory alone: the logarithm of the gamma function costs more than all the rest of a law.
        """
        plain = heard[: len(self.memories)]
        constant = [HEAVY_FREEDOM] * len(self.heavy) + [min(span, QUICK_FREEDOM) for span in self.quick]
        few = jnp.asarray(np.array(constant, heard.dtype))
        factors = jnp.asarray(_constant_factors(constant, entries).astype(heard.dtype))
        return jnp.concatenate([plain, few]), jnp.concatenate([_log_factors(plain, entries), factors])

    @property
    def _widths(self) -> tuple[tuple[float, ...], ...]:
        """The widths of each memory's laws."""
        lasting = (*self.memories, *self.heavy)
        return (*(self.widths if span >= WIDTHS_FROM else (1.0,) for span in lasting), *[(1.0,)] * len(self.quick))

    def _by_law(self, numbers: Float[Array, "rates memories"]) -> Float[Array, " v"]:
        """A number of each rate and memory as one of each law."""
        parts = [numbers[:, at, None] for at, widths in enumerate(self._widths) for _ in widths]
        return jnp.concatenate(parts, axis=1).ravel()

    def _longest(self, numbers: Float[Array, "rates memories"]) -> Float[Array, "rates 1"]:
        """The numbers of the last plain memory, or of the first heavy one."""
        return numbers[:, max(len(self.memories) - 1, 0), None]

    def start(self, dtype: Any) -> Noise:
        """As after one innovation of the size expected."""
        shape = (len(self.rates), len(self._memories))
        return Noise(
            level=jnp.zeros((len(self.rates), self.entries), dtype),
            heard=jnp.ones(len(self._memories), dtype),
            squares=jnp.ones(shape, dtype),
        )

    def needed(self, prediction: FilterPrediction) -> Moments:
        """Mean and covariance."""
        return Moments(prediction.mean, prediction.cov)

    def laws(self, memory: Noise, prediction: Moments, ahead: Any = 0) -> StudentLaw:
        """Each rate's mean with each memory's noise, at each width.

        A level that follows at rate a moves by a e with each observation: `ahead` of them add `ahead` a^2 to the
        variance, in units of the noise, and a quick memory tells less of the noise then.
        """
        assert prediction.cov is not None
        each = self.count // len(self.rates)
        size = len(prediction.mean)
        means = prediction.mean[None] + memory.level
        freedom, factors = self._freedom(memory.heard, size)
        covs = jnp.broadcast_to(prediction.cov, (len(self.rates), size, size))
        if not isinstance(ahead, int) or ahead:
            wandered = jnp.asarray(ahead, covs.dtype) * jnp.square(jnp.asarray(self.rates, covs.dtype))
            covs = covs + wandered[:, None, None] * jnp.eye(size, dtype=covs.dtype)[None]
            memory = self._settling(memory, ahead)
        by_rate = (len(self.rates), len(self._memories))
        by_law = jax.vmap(lambda numbers: self._by_law(jnp.broadcast_to(numbers, by_rate)), 1, 1)
        return StudentLaw(
            mean=jnp.repeat(means, each, axis=0),
            cov=jnp.repeat(covs, each, axis=0),
            width=self.units(memory, prediction.mean.dtype),
            freedom=self._by_law(jnp.broadcast_to(freedom, by_rate)),
            log_factors=by_law(factors),
        )

    def observe(self, memory: Noise, prediction: Moments, y: Event) -> Noise:
        """n <- d n + 1, sum <- d sum + e' Q^-1 e / k, level <- level + a e; what is missing says nothing."""
        assert prediction.cov is not None
        residual, cov, present = present_entries(prediction.mean, prediction.cov, y)
        errors = residual[None] - jnp.where(present[None], memory.level, 0.0)
        white = linalg.cholesky(cov).whiten(errors.T)
        told = jnp.sum(jnp.square(white), axis=0) / jnp.maximum(jnp.sum(present), 1)
        # one wild value widens the noise by a bounded factor; where such values keep coming it follows within a few
        usual = memory.squares / memory.heard[None]
        # a burst of noise does not move the level further: deviations are those of memories that last
        calm = jnp.min(usual[:, : self._lasting], axis=1)
        widest = LARGEST_LEVEL * jnp.sqrt(calm[:, None] * jnp.diagonal(cov)[None])
        surprise = jnp.minimum(told[:, None], LARGEST_SURPRISE * usual)
        # of a heavy tail the weight (f + 1) / (f + d / s2) of the maximum-likelihood scale
        least = jnp.maximum(usual, jnp.finfo(usual.dtype).tiny)
        few = np.isfinite(self._robust)
        freedom = jnp.asarray(np.where(few, self._robust, 1.0), usual.dtype)[None]
        counted = (freedom + 1) / (freedom + told[:, None] / least) * told[:, None]
        surprise = jnp.where(few[None], counted, surprise)
        discount = jnp.asarray([1 - 1 / span for span in self._memories], memory.heard.dtype)
        heard = discount * memory.heard + 1
        squares = discount[None] * memory.squares + surprise
        if self.quick:
            quietest = QUIETEST * self._longest(squares / heard[None]) * heard[None, self._lasting :]
            quick = jnp.maximum(squares[:, self._lasting :], quietest)
            squares = jnp.concatenate([squares[:, : self._lasting], quick], axis=1)
        after = Noise(
            level=memory.level + jnp.asarray(self.rates, errors.dtype)[:, None] * jnp.clip(errors, -widest, widest),
            heard=heard,
            squares=squares,
        )
        known = jnp.any(present) & jnp.all(jnp.isfinite(surprise))
        return jax.tree.map(lambda new, old: jnp.where(known, new, old), after, memory)

    def units(self, memory: Noise, dtype: Any) -> Float[Array, " v"]:
        """The deviation of the noise, at each width."""
        scale = jnp.sqrt(memory.squares / memory.heard[None]).astype(dtype)
        widths = np.tile(np.concatenate(self._widths), len(self.rates))
        return self._by_law(scale) * jnp.asarray(widths, dtype)

    def along(self, memory: Noise, prediction: Moments, y: Event) -> Noise:
        """The levels follow; the size of the noise stays, and that of a burst ends."""
        return self._settling(memory, 1)._replace(level=self.observe(memory, prediction, y).level)

    def _settling(self, memory: Noise, ahead: Any) -> Noise:
        """What quick memories tell of the noise so many observations ahead: s2 <- d s2 + (1 - d) s2 of the lasting."""
        if not self.quick:
            return memory
        usual = memory.squares / memory.heard[None]
        lasting = self._longest(usual)
        steps = jnp.asarray(ahead, usual.dtype)
        left = jnp.power(jnp.asarray([1 - 1 / span for span in self.quick], usual.dtype), steps)
        settled = lasting + left[None] * (usual[:, self._lasting :] - lasting)
        quick = settled * memory.heard[None, self._lasting :]
        return memory._replace(squares=jnp.concatenate([memory.squares[:, : self._lasting], quick], axis=1))

    def in_units(self, memory: Noise, factor: Array) -> Noise:
        """A level is a number of units, `squares` are squares of them; of several entries their mean."""
        each = jnp.reshape(factor, (-1,))
        return memory._replace(level=memory.level / each[None], squares=memory.squares / jnp.mean(jnp.square(each)))

    def log_prob(self, law: StudentLaw, y: Event) -> Float[Array, ""]:
        """Log t of the entries that are there."""
        residual, cov, present = present_entries(law.mean, law.cov, y)
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


def _constant_factors(freedom: Sequence[float], entries: int) -> np.ndarray:
    """`_log_factors` of numbers that are known beforehand, computed here and not on the device."""
    rows = [
        [math.lgamma((f + d) / 2) - math.lgamma(f / 2) - d / 2 * math.log(f * math.pi) for d in range(entries + 1)]
        for f in freedom
    ]
    return np.array(rows).reshape(len(freedom), entries + 1)


def present_entries(mean: Array, cov: Array, y: Event) -> tuple[Array, Array, Array]:
    """Residual, covariance and mask of y; missing entries become independent, of unit variance and free of error."""
    value = jnp.reshape(as_float(y, mean.dtype), mean.shape)
    present = ~jnp.isnan(value)
    both = present[:, None] & present[None, :]
    return jnp.where(present, value - mean, 0.0), jnp.where(both, cov, jnp.eye(len(mean), dtype=mean.dtype)), present
