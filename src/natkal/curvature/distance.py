"""How far a structured posterior is from the dense one."""

import jax.numpy as jnp

from natkal.typing import Array, Float


def gaussian_kl(cov: Float[Array, "p p"], reference: Float[Array, "p p"]) -> Float[Array, ""]:
    """KL(N(m, cov) || N(m, reference)) = (tr(reference^-1 cov) - p + ln det reference - ln det cov) / 2, in nats."""
    ratio = jnp.linalg.solve(reference, cov)
    gap = jnp.linalg.slogdet(reference)[1] - jnp.linalg.slogdet(cov)[1]
    return (jnp.trace(ratio) - len(cov) + gap) / 2


def cosine(step: Float[Array, " p"], reference: Float[Array, " p"]) -> Float[Array, ""]:
    """The cosine of the angle between two steps; 1 where either is zero."""
    lengths = jnp.sqrt((step @ step) * (reference @ reference))
    return jnp.where(lengths > 0, (step @ reference) / jnp.where(lengths > 0, lengths, 1.0), 1.0)
