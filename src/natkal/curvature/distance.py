"""How far a structured posterior is from the dense one."""

import jax.numpy as jnp

from natkal import linalg
from natkal.typing import Array, Float


def gaussian_kl(cov: Float[Array, "p p"], reference: Float[Array, "p p"]) -> Float[Array, ""]:
    """KL(N(m, cov) || N(m, reference)) = (tr(reference^-1 cov) - p + ln det reference - ln det cov) / 2, in nats."""
    own, other = linalg.cholesky(cov), linalg.cholesky(reference)
    trace = jnp.sum(jnp.square(other.whiten(own.triangle())))
    gap = 2 * jnp.sum(jnp.log(other.diagonal()) - jnp.log(own.diagonal()))
    return (trace - len(cov) + gap) / 2


def cosine(step: Float[Array, " p"], reference: Float[Array, " p"]) -> Float[Array, ""]:
    """The cosine of the angle between two steps; 1 where either is zero."""
    lengths = jnp.sqrt((step @ step) * (reference @ reference))
    return jnp.where(lengths > 0, (step @ reference) / jnp.where(lengths > 0, lengths, 1.0), 1.0)
