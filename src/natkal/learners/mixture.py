"""The prediction of a bank: a weighted mixture of predictive laws."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from natkal.engine.distributions import find_quantile
from natkal.engine.prediction import PredictiveLaw
from natkal.families.base import Event, Family
from natkal.learners.predictive import Laws, Moments
from natkal.typing import Array, Float

HEAVIEST = 4
"""Quantiles of counts are taken from so many laws of largest weight: their distribution functions are slow."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["mean", "spread", "weights", "experts"],
    meta_fields=["laws", "family"],
)
@dataclasses.dataclass(frozen=True)
class Mixture(PredictiveLaw):
    """What a bank expects of y.

    `mean` and `cov` are those of T(y) under the mixture. `weights` are those of each member (rows) with each of its
    predictive laws (columns), and `experts` are these laws.
    """

    mean: Float[Array, " k"]
    spread: Float[Array, "k k"] | None
    weights: Float[Array, "m v"]
    experts: Any
    laws: Laws
    family: Family

    @property
    def cov(self) -> Array:
        """Cov[T(y)]: the mean of the covariances plus the covariance of the means."""
        if self.spread is not None:
            return self.spread
        compute = lambda mean: self.family.cov(self.family.natural(mean))  # noqa: E731
        return compute(self.mean) if self.mean.ndim == 1 else jax.vmap(compute)(self.mean)

    def log_prob_one(self, y: Event) -> Array:
        """Log of the weighted sum of probabilities."""
        each = jax.vmap(jax.vmap(lambda law: self.laws.log_prob(law, y)))(self.experts)
        return logsumexp(jnp.where(self.weights > 0, jnp.log(self.weights) + each, -jnp.inf))

    def cdf_one(self, y: Array) -> Array:
        """P(Y <= y); uniform between 0 and 1 along a stream whose predictive laws are right."""
        values = jax.vmap(jax.vmap(lambda law: self.laws.cdf(law, y)))(self.experts)
        weights = self.weights.reshape(self.weights.shape + (1,) * jnp.ndim(y))
        return jnp.sum(jnp.where(weights > 0, weights * values, 0.0), axis=(0, 1))

    def quantile_one(self, q: Array) -> Array:
        """By bisection; of counts, over the laws of largest weight."""
        few = self if self.family.support == "real" else self.heaviest(HEAVIEST)
        centre, variance = self.moments_one()
        return find_quantile(few.cdf_one, centre, jnp.sqrt(variance), q, self.family.support)

    def sample_one(self, key: Array) -> Array:
        """A law by its weight, then a draw from it."""
        law_key, y_key = jax.random.split(key)
        chosen = jax.random.categorical(law_key, jnp.log(self.weights).ravel())
        law = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[chosen], self.experts)
        return self.laws.sample(law, y_key)

    def probabilities_one(self) -> Array:
        """The mixture's."""
        return self.family.class_probabilities(self.mean)

    def heaviest(self, count: int) -> "Mixture":
        """The mixture of the `count` laws of largest weight alone."""
        weights = self.weights.ravel()
        if weights.size <= count:
            return self
        chosen, left = [], weights
        for _ in range(count):
            chosen.append(jnp.argmax(left))
            left = left.at[chosen[-1]].set(-1.0)
        picked = jnp.stack(chosen)
        kept = weights[picked] / jnp.sum(weights[picked])
        experts = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[picked][None], self.experts)
        return dataclasses.replace(self, weights=kept[None], experts=experts)

    def rescaled(self, location: Array, scale: Array) -> "Mixture":
        """The prediction of `location + scale y` where this is the prediction of y."""
        flat = jnp.broadcast_to(jnp.reshape(scale, (-1,)), self.mean.shape)
        shift = jnp.broadcast_to(jnp.reshape(location, (-1,)), self.mean.shape)
        spread = None if self.spread is None else flat[:, None] * self.spread * flat[None, :]
        experts = jax.vmap(jax.vmap(lambda law: self.laws.rescaled(law, location, scale)))(self.experts)
        return dataclasses.replace(self, mean=shift + flat * self.mean, spread=spread, experts=experts)


def mixed_moments(weights: Float[Array, "m v"], moments: Moments) -> Moments:
    """Mean of the means; mean of the covariances plus covariance of the means. Laws without weight do not count."""
    counts = weights > 0
    means = jnp.where(counts[..., None], moments.mean, 0.0)
    mean = jnp.einsum("mv,mvk->k", weights, means)
    if moments.cov is None:
        return Moments(mean=mean, cov=None)
    covs = jnp.where(counts[..., None, None], moments.cov, 0.0)
    apart = jnp.where(counts[..., None], means - mean[None, None], 0.0)
    cov = jnp.einsum("mv,mvkl->kl", weights, covs) + jnp.einsum("mv,mvk,mvl->kl", weights, apart, apart)
    return Moments(mean=mean, cov=cov)
