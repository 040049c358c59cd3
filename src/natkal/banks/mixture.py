"""The prediction of a bank: a weighted mixture of predictive laws."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from natkal.engine.distributions import find_quantile
from natkal.engine.prediction import PredictiveLaw
from natkal.families.base import Event, Family
from natkal.laws import Laws, Marginal, Moments
from natkal.typing import Array, Float


class LawsByGroup(NamedTuple):
    """Laws of members whose predictions have different structures, group by group."""

    parts: tuple[Any, ...]


class MarginalLaw(NamedTuple):
    """The law of a target by its own past alone, and its weight."""

    law: Any
    weight: Float[Array, ""]


HEAVIEST = 4
"""Quantiles of counts are taken from so many laws of largest weight: their distribution functions are slow."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["mean", "spread", "weights", "experts", "marginal"],
    meta_fields=["laws", "family", "marginals"],
)
@dataclasses.dataclass(frozen=True)
class Mixture(PredictiveLaw):
    """What a bank expects of y.

    `mean` and `cov` are those of T(y) under the mixture. `weights` are those of each member (rows) with each of its
    predictive laws (columns), and `experts` are these laws. What the weights lack of 1 is the weight of `marginal`.
    """

    mean: Any  # (k,), or (n, k) where several are stacked
    spread: Any  # (k, k) or None
    weights: Any  # (m, v)
    experts: Any
    laws: Laws
    family: Family
    marginal: MarginalLaw | None = None
    marginals: Marginal | None = None

    @property
    def cov(self) -> Array:
        """Cov[T(y)]: the mean of the covariances plus the covariance of the means."""
        if self.spread is not None:
            return self.spread
        compute = lambda mean: self.family.cov(self.family.natural(mean))  # noqa: E731
        return compute(self.mean) if self.mean.ndim == 1 else jax.vmap(compute)(self.mean)

    def log_prob_one(self, y: Event) -> Array:
        """Log of the weighted sum of probabilities."""
        each = self._each(lambda law: self.laws.log_prob(law, y))
        total = logsumexp(jnp.where(self.weights > 0, jnp.log(self.weights) + each, -jnp.inf))
        if self.marginal is None or self.marginals is None:
            return total
        return jnp.logaddexp(total, jnp.log(self.marginal.weight) + self.marginals.log_prob(self.marginal.law, y))

    def cdf_one(self, y: Array) -> Array:
        """P(Y <= y); uniform between 0 and 1 along a stream whose predictive laws are right."""
        values = self._each(lambda law: self.laws.cdf(law, y))
        weights = self.weights.reshape(self.weights.shape + (1,) * jnp.ndim(y))
        total = jnp.sum(jnp.where(weights > 0, weights * values, 0.0), axis=(0, 1))
        if self.marginal is None or self.marginals is None:
            return total
        return total + self.marginal.weight * self.marginals.cdf(self.marginal.law, y)

    def quantile_one(self, q: Array) -> Array:
        """By bisection; of counts, over the laws of largest weight."""
        few = self if self.family.support == "real" else self.heaviest(HEAVIEST)
        centre, variance = self.moments_one()
        return find_quantile(few.cdf_one, centre, jnp.sqrt(variance), q, self.family.support)

    def sample_one(self, key: Array) -> Array:
        """A law by its weight, then a draw from it."""
        law_key, y_key = jax.random.split(key)
        chosen = jax.random.categorical(law_key, jnp.log(self.weights).ravel())
        drawn, first = [], 0
        for part in _parts(self.experts):
            count = math.prod(jnp.shape(jax.tree.leaves(part)[0])[:2])
            own = jnp.clip(chosen - first, 0, count - 1)
            law = jax.tree.map(lambda leaf, own=own: leaf.reshape(-1, *leaf.shape[2:])[own], part)
            drawn.append((chosen >= first, self.laws.sample(law, y_key)))
            first += count
        draw = drawn[0][1]
        for reached, other in drawn[1:]:
            draw = jnp.where(reached, other, draw)
        if self.marginal is None or self.marginals is None:
            return draw
        which_key, own_key = jax.random.split(law_key)
        own = self.marginals.sample(self.marginal.law, own_key).astype(draw.dtype)
        return jnp.where(jax.random.uniform(which_key) < self.marginal.weight, own, draw)

    def probabilities_one(self) -> Array:
        """The mixture's."""
        return self.family.class_probabilities(self.mean)

    def heaviest(self, count: int) -> "Mixture":
        """The mixture of the `count` laws of largest weight alone."""
        weights = self.weights.ravel()
        if weights.size <= count or isinstance(self.experts, LawsByGroup):
            return self
        picked = _largest(weights, count)
        kept = weights[picked] * jnp.sum(weights) / jnp.sum(weights[picked])
        experts = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[picked][None], self.experts)
        return dataclasses.replace(self, weights=kept[None], experts=experts)

    def heaviest_members(self, count: int) -> "Mixture":
        """The mixture of all laws of the `count` members of largest weight alone."""
        if len(self.weights) <= count or isinstance(self.experts, LawsByGroup):
            return self
        picked = _largest(jnp.sum(self.weights, axis=1), count)
        kept = self.weights[picked] * jnp.sum(self.weights) / jnp.sum(self.weights[picked])
        return dataclasses.replace(self, weights=kept, experts=jax.tree.map(lambda leaf: leaf[picked], self.experts))

    def rescaled(self, location: Array, scale: Array) -> "Mixture":
        """The prediction of `location + scale y` where this is the prediction of y."""
        flat = jnp.broadcast_to(jnp.reshape(scale, (-1,)), self.mean.shape)
        shift = jnp.broadcast_to(jnp.reshape(location, (-1,)), self.mean.shape)
        spread = None if self.spread is None else flat[:, None] * self.spread * flat[None, :]
        experts = jax.vmap(jax.vmap(lambda law: self.laws.rescaled(law, location, scale)))(self.experts)
        marginal = self._marginal(lambda laws, law: laws.rescaled(law, location, scale))
        return dataclasses.replace(
            self, mean=shift + flat * self.mean, spread=spread, experts=experts, marginal=marginal
        )

    def with_means(self, change: Callable[[Array], Array]) -> "Mixture":
        """Every law with the mean that `change` makes of its own."""
        positive = self.family.support != "real"

        def one(laws: Any, law: Any) -> Any:
            mean = laws.moments(law).mean
            if positive:  # these laws have a mean and no location
                return laws.rescaled(
                    law, jnp.zeros_like(mean), change(mean) / jnp.maximum(mean, jnp.finfo(mean.dtype).tiny)
                )
            return laws.rescaled(law, change(mean) - mean, jnp.ones_like(mean))

        experts = jax.vmap(jax.vmap(partial(one, self.laws)))(self.experts)
        marginal = self._marginal(one)
        moments = jax.vmap(jax.vmap(self.laws.moments))(experts)
        together = mixed_moments(*with_marginal(self.weights, moments, self.marginals, marginal))
        return dataclasses.replace(self, mean=together.mean, spread=together.cov, experts=experts, marginal=marginal)

    def _marginal(self, change: Callable[[Marginal, Any], Any]) -> MarginalLaw | None:
        """The law of the target's own past as `change` makes it."""
        if self.marginal is None or self.marginals is None:
            return None
        return self.marginal._replace(law=change(self.marginals, self.marginal.law))

    def _each(self, compute: Callable[[Any], Array]) -> Array:
        """A number (or array) for each law, in the order of the weights."""
        return jnp.concatenate([jax.vmap(jax.vmap(compute))(part) for part in _parts(self.experts)])


def _largest(weights: Float[Array, " n"], count: int) -> Array:
    """The places of the `count` largest."""
    chosen, left = [], weights
    for _ in range(count):
        chosen.append(jnp.argmax(left))
        left = left.at[chosen[-1]].set(-1.0)
    return jnp.stack(chosen)


def joined_laws(groups: Sequence[Any]) -> Any:
    """The laws of all groups along one axis where they have one structure, group by group elsewhere."""
    shapes = {str(jax.tree.map(lambda leaf: leaf.shape[1:], laws)) for laws in groups}
    if len(shapes) > 1:
        return LawsByGroup(tuple(groups))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *groups)


def _parts(experts: Any) -> tuple[Any, ...]:
    return experts.parts if isinstance(experts, LawsByGroup) else (experts,)


def with_marginal(
    weights: Float[Array, "m v"], moments: Moments, marginals: Marginal | None, marginal: MarginalLaw | None
) -> tuple[Float[Array, "1 e"], Moments]:
    """Weights and moments of all laws in one row, that of the target's own past last where there is one."""
    flat = jax.tree.map(lambda leaf: leaf.reshape(1, -1, *leaf.shape[2:]), (weights, moments))
    if marginal is None or marginals is None:
        return flat
    own = marginal.weight, marginals.moments(marginal.law)
    return jax.tree.map(
        lambda many, one: jnp.concatenate([many, one.astype(many.dtype)[None, None]], axis=1), flat, own
    )


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
