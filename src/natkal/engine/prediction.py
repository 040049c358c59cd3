"""What is expected of y before it is seen: the `Prediction` protocol, and the prediction of a single filter."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from natkal import linalg
from natkal.engine.distributions import find_quantile, matched_cdf
from natkal.families.base import Event, Family
from natkal.typing import Array, Float


@runtime_checkable
class Prediction(Protocol):
    """The predictive law of one observation, or of n of them where `mean` has a leading axis (as `run` gives them).

    A prediction of classes also has `probabilities`, those of all K classes in the order of their numbers; others
    refuse with a sentence.
    """

    @property
    def mean(self) -> Array:
        """E[T(y)]; for most families the mean of y."""
        ...

    @property
    def cov(self) -> Array | None:
        """Cov[T(y)], noise and parameter uncertainty together."""
        ...

    def log_prob(self, y: Any) -> Array:
        """Log density, or log probability, of y."""
        ...

    def cdf(self, y: Any) -> Array:
        """P(Y <= y), entry by entry."""
        ...

    def quantile(self, q: Any) -> Array:
        """The y below which lies the probability q."""
        ...

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval that holds y with probability `level`."""
        ...

    def sample(self, key: Array) -> Array:
        """One draw of y."""
        ...


class PredictiveLaw:
    """Methods that every prediction shares: one row or a stack of rows, quantiles from `cdf_one`.

    A subclass is a pytree with fields `mean` and `cov`, a static field `family`, and the methods `log_prob_one`,
    `cdf_one` and `sample_one` of a single row.
    """

    mean: Any
    cov: Any
    family: Family

    def log_prob(self, y: Any) -> Array:
        """Log density, or log probability, of y."""
        return self._rows(type(self).log_prob_one, jnp.asarray(y))

    def cdf(self, y: Any) -> Array:
        """P(Y <= y), entry by entry."""
        self._check_quantiles()
        return self._rows(type(self).cdf_one, jnp.asarray(y, self.mean.dtype))

    def quantile(self, q: Any) -> Array:
        """The y below which lies the probability q: one number for all rows."""
        self._check_quantiles()
        compute = partial(type(self).quantile_one, q=jnp.asarray(q, self.mean.dtype))
        return compute(self) if self.mean.ndim == 1 else jax.vmap(compute)(self)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval that holds y with probability `level`."""
        if not 0 < level < 1:
            raise ValueError(f"level: must lie strictly between 0 and 1, got {level}")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def sample(self, key: Array) -> Array:
        """One draw of y, of each row where there are several."""
        if self.mean.ndim == 1:
            return self.sample_one(key)
        return jax.vmap(type(self).sample_one)(self, jax.random.split(key, len(self.mean)))

    @property
    def probabilities(self) -> Array:
        """The probabilities of all K classes, in the order of their numbers."""
        if self.family.support != "classes":
            raise ValueError(f"probabilities: {self.family} has no classes; use mean, quantile or interval")
        compute = type(self).probabilities_one
        return compute(self) if self.mean.ndim == 1 else jax.vmap(compute)(self)

    def log_prob_one(self, y: Event) -> Array:
        """`log_prob` of one row."""
        raise NotImplementedError

    def cdf_one(self, y: Array) -> Array:
        """`cdf` of one row."""
        raise NotImplementedError

    def sample_one(self, key: Array) -> Array:
        """`sample` of one row."""
        raise NotImplementedError

    def probabilities_one(self) -> Array:
        """`probabilities` of one row."""
        raise NotImplementedError

    def quantile_one(self, q: Array) -> Array:
        """`quantile` of one row, by bisection of its distribution function."""
        centre, variance = self.moments_one()
        return find_quantile(self.cdf_one, centre, jnp.sqrt(variance), q, self.family.support)

    def moments_one(self) -> tuple[Array, Array]:
        """Mean and variance of each entry of y, in the shape of y."""
        shape = self.family.event_shape
        count = math.prod(shape)
        if self.cov is None:
            raise ValueError("quantiles: this prediction has no covariance (the learner follows few of many outputs)")
        return self.mean[:count].reshape(shape), jnp.diagonal(self.cov)[:count].reshape(shape)

    def _rows(self, compute: Callable[[Any, Any], Array], y: Array) -> Array:
        """`compute` of the one row, or of each of a stack with its own y (or with the same y)."""
        if self.mean.ndim == 1:
            return compute(self, y)
        stacked = y.ndim > len(self.family.event_shape)
        return jax.vmap(compute, in_axes=(0, 0 if stacked else None))(self, y)

    def _check_quantiles(self) -> None:
        if self.family.support not in ("real", "count", "positive"):
            what = "use probabilities" if self.family.support == "classes" else "use mean and cov"
            raise ValueError(f"quantiles: {self.family} has none; {what}")


@partial(
    jax.tree_util.register_dataclass, data_fields=["natural", "mean", "natural_cov", "cov"], meta_fields=["family"]
)
@dataclasses.dataclass(frozen=True)
class FilterPrediction(PredictiveLaw):
    """The prediction of one filter.

    `natural` and `mean` are the parameters of the plug-in law. `natural_cov` is the covariance of the natural
    parameters that comes from not knowing theta, and `cov` that of T(y) from both sources, the law's own noise and
    theta. Both are None in the `StepInfo` of a learner that follows only a few combinations of many outputs. `log_prob`
    is that of the plug-in law; quantiles are those of the law with the moments `mean` and `cov` (exact for a Gaussian).
    """

    natural: Any  # (k,), or (n, k) where several are stacked
    mean: Any
    natural_cov: Any  # (k, k) or None
    cov: Any
    family: Family

    def log_prob_one(self, y: Event) -> Array:
        """Log p(y) under the plug-in law."""
        return self.family.log_prob(self.natural, y)

    def cdf_one(self, y: Array) -> Array:
        """P(Y <= y) of the law with this mean and covariance."""
        return matched_cdf(self.family.support, *self.moments_one(), y)

    def quantile_one(self, q: Array) -> Array:
        """In closed form for real numbers."""
        if self.family.support != "real":
            return super().quantile_one(q)
        mean, variance = self.moments_one()
        return mean + jnp.sqrt(variance) * ndtri(q)

    def sample_one(self, key: Array) -> Array:
        """Natural parameters from their own law, then y given them."""
        if self.natural_cov is None or self.family.link(self.natural) is not self.natural:  # not every nu is allowed
            return self.family.sample(key, self.natural)
        parameter_key, noise_key = jax.random.split(key)
        noise = jax.random.normal(parameter_key, self.natural.shape, self.natural.dtype)
        return self.family.sample(noise_key, self.natural + linalg.semidefinite(self.natural_cov).triangle() @ noise)

    def probabilities_one(self) -> Array:
        """Those of the plug-in law."""
        return self.family.class_probabilities(self.mean)


def make_prediction(outputs: Family, raw: Float[Array, " k"], raw_cov: Float[Array, "k k"] | None) -> FilterPrediction:
    """The plug-in law at `raw`, blurred by `raw_cov`: Cov[T] + Cov[T] natural_cov Cov[T], as d mean / d nu = Cov[T]."""
    if raw_cov is None:
        law = outputs.link(raw)
        return FilterPrediction(natural=law, mean=outputs.mean(law), natural_cov=None, cov=None, family=outputs)
    natural, push = jax.linearize(outputs.link, raw)
    link_jacobian = jax.vmap(push, out_axes=1)(jnp.eye(len(raw), dtype=raw.dtype))
    natural_cov = link_jacobian @ raw_cov @ link_jacobian.T
    noise_cov = outputs.cov(natural)
    return FilterPrediction(
        natural=natural,
        mean=outputs.mean(natural),
        natural_cov=natural_cov,
        cov=noise_cov + noise_cov @ natural_cov @ noise_cov,
        family=outputs,
    )
