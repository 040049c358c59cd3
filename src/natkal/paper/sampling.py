"""Sec. 1.2: is the sampled Fisher matrix unbiased? A test with a stated level, since no equality can say it."""

from typing import Any

import jax
import jax.numpy as jnp

from natkal.families.base import Family
from natkal.paper.kalman import Mean
from natkal.paper.natural_gradient import exact, monte_carlo
from natkal.typing import Array, Float

LEVEL = 1e-3
"""How often the test may reject an unbiased estimate, over all entries of the matrix together."""


def largest_z(
    h: Mean, family: Family, params: Float[Array, " p"], u: Any, y: Any, key: Array, batches: int = 128, draws: int = 64
) -> Float[Array, ""]:
    """The largest |z| over the entries of the Monte Carlo Fisher matrix, from `batches` estimates of `draws` samples.

    z = (average - exact) / (standard deviation / sqrt batches), about standard normal for each entry.
    """
    reference = exact()(h, family, params, u, y, key)
    estimates = jax.lax.map(
        lambda key: monte_carlo(draws)(h, family, params, u, y, key), jax.random.split(key, batches)
    )
    spread = jnp.std(estimates, axis=0, ddof=1) / jnp.sqrt(float(batches))
    # An entry that no sample ever moves (two outputs that share no parameter) has no spread: it must be right as it is.
    scale = jnp.max(jnp.abs(reference))
    rounding = 1e3 * jnp.finfo(reference.dtype).eps * scale
    return jnp.max(jnp.abs(jnp.mean(estimates, axis=0) - reference) / jnp.maximum(spread, rounding))


def bound(size: int, level: float = LEVEL) -> float:
    """The |z| that none of the p (p + 1) / 2 entries exceeds with probability 1 - level (Bonferroni, two-sided)."""
    entries = size * (size + 1) / 2
    return float(-jax.scipy.special.ndtri(level / (2 * entries)))
