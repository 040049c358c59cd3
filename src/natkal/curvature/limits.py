"""How far forgetting may widen what is never observed.

Forgetting divides every variance by `keep` at each step. What observations tell of shrinks again; a direction that none
tells of grows by (1 - lambda)^-t and would overflow after 88 / lambda steps in float32, 709 / lambda in float64. So a
variance above `largest_variance`, 1 / sqrt(eps) times the largest prior variance (2.9e3 times in float32, 6.7e7 times
in float64), is set back to half of it, by P <- H P H with a diagonal H. P stays positive definite, and every direction
is bounded by the trace of P. Where no variance is above the limit, H is the identity to the last bit. A structure that
keeps precisions holds them from below, at `least_precision`.
"""

import jax.numpy as jnp

from natkal.typing import Array, Float


def largest_variance(cov: Float[Array, " p"] | Float[Array, "p p"]) -> Float[Array, ""]:
    """The variance that forgetting may reach, from the prior covariance as variances or as a matrix."""
    variances = cov if cov.ndim == 1 else jnp.diagonal(cov)
    return jnp.max(variances) * jnp.finfo(cov.dtype).eps ** -0.5


def least_precision(precision: Float[Array, "*n"]) -> Float[Array, ""]:
    """The precision that forgetting may reach, from the variances' own inverses."""
    return jnp.min(precision) * jnp.finfo(precision.dtype).eps ** 0.5


def holds(variances: Float[Array, "*n"], limit: Float[Array, ""]) -> Float[Array, "*n"]:
    """The diagonal of H: 1, and less where a variance is above the limit."""
    over = variances > limit
    return jnp.where(over, jnp.sqrt(limit / 2 / jnp.where(over, variances, 1.0)), 1.0)
