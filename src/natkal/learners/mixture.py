"""What a bank expects: one law for each expert, their weights, and what follows from both."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.learners.predictive import Moments, SameMean, Voices
from natkal.typing import Array, Float

BISECTIONS = 40


class Mixture(NamedTuple):
    """What is expected of y before it is seen, in the user's units.

    `mean` and `total_cov` are those of T(y) under the mixture: for classes `mean` holds the probabilities. `weights`
    are those of each member (rows) in each of its voices. `laws` are the experts' own, of y as the members see it,
    `(y - location) / scale`.
    """

    mean: Float[Array, " k"]
    total_cov: Float[Array, "k k"]
    weights: Float[Array, "m v"]
    laws: Any
    location: Float[Array, "*e"]
    scale: Float[Array, "*e"]


def mixed_moments(weights: Float[Array, "m v"], moments: Moments) -> Moments:
    """Mean of the means; mean of the covariances plus covariance of the means. Experts without weight do not count."""
    counts = weights > 0
    means = jnp.where(counts[..., None], moments.mean, 0.0)
    covs = jnp.where(counts[..., None, None], moments.cov, 0.0)
    mean = jnp.einsum("mv,mvk->k", weights, means)
    apart = jnp.where(counts[..., None], means - mean[None, None], 0.0)
    cov = jnp.einsum("mv,mvkl->kl", weights, covs) + jnp.einsum("mv,mvk,mvl->kl", weights, apart, apart)
    return Moments(mean=mean, cov=cov)


def distribution(voices: Voices, mixture: Mixture, y: Float[Array, "*e"]) -> Float[Array, "*e"]:
    """P(Y <= y) under the mixture, entry by entry; uniform between 0 and 1 along a stream that was understood."""
    inner = (y - mixture.location) / mixture.scale
    values = jax.vmap(jax.vmap(lambda law: voices.cdf(law, inner)))(mixture.laws)
    weights = mixture.weights.reshape(mixture.weights.shape + (1,) * jnp.ndim(inner))
    return jnp.sum(jnp.where(weights > 0, weights * values, 0.0), axis=(0, 1))


def summarised(voices: Voices, mixture: Mixture) -> Mixture:
    """Counts and positive numbers: the mixture as one law of the same mean and variance; other laws as they are."""
    if not isinstance(voices, SameMean):
        return mixture
    law = voices.summary(Moments(mean=mixture.mean, cov=mixture.total_cov))
    laws = jax.tree.map(lambda leaf: leaf[None, None], law)
    return mixture._replace(weights=jnp.ones((1, 1), mixture.mean.dtype), laws=laws)


def quantile(voices: Voices, mixture: Mixture, probability: Float[Array, ""], whole: bool) -> Float[Array, "*e"]:
    """The y below which lies this probability: bracketed from the moments, then bisected; counts are whole numbers."""
    shape = jnp.shape(mixture.location)
    spread = jnp.reshape(jnp.sqrt(jnp.diagonal(mixture.total_cov)), shape)
    centre = jnp.reshape(mixture.mean, shape)

    def widen(step: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        low = jnp.where(distribution(voices, mixture, low) > probability, centre - 4.0 * (centre - low), low)
        high = jnp.where(distribution(voices, mixture, high) < probability, centre + 4.0 * (high - centre), high)
        return low, high

    def halve(step: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        above = distribution(voices, mixture, middle) >= probability
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    bracket = jax.lax.fori_loop(0, 10, widen, (centre - 4.0 * spread, centre + 4.0 * spread))
    high = jax.lax.fori_loop(0, BISECTIONS, halve, bracket)[1]
    return jnp.maximum(jnp.floor(high), 0.0) if whole else high
