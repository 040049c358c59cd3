"""The small algebra of one observation, in the m coordinates of its rows: the only matrices that are ever factored."""

import jax
import jax.numpy as jnp

from natkal.typing import Array, Float


def innovation_root(gram: Float[Array, "m m"], factor: Float[Array, "m r"]) -> Float[Array, "r r"]:
    """L with L L' = S = I + F' G F, whose eigenvalues are at least 1; a square root where S is a number."""
    innovation = jnp.eye(factor.shape[1], dtype=gram.dtype) + factor.T @ gram @ factor
    return jnp.sqrt(innovation) if innovation.shape == (1, 1) else jnp.linalg.cholesky(innovation)


def lower_solve(lower: Float[Array, "r r"], right: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """L^-1 right, by inverting the r x r factor alone (a triangular solve over p columns is far slower)."""
    if lower.shape == (1, 1):
        return right / lower
    identity = jnp.eye(len(lower), dtype=lower.dtype)
    return jax.scipy.linalg.solve_triangular(lower, identity, lower=True) @ right


def correction(gram: Float[Array, "m m"], factor: Float[Array, "m r"]) -> Float[Array, "r m"]:
    """`L^-1 F'` with `L L' = S`: then `P <- P - U'U` for `U = L^-1 F' rows P`."""
    return lower_solve(innovation_root(gram, factor), factor.T)


def attenuated(gram: Float[Array, "m m"], factor: Float[Array, "m r"], push: Float[Array, " m"]) -> Float[Array, " m"]:
    """x = (I + F F' G)^-1 push, so that P_new rows' push = P rows' x.

    Solved for, not written as the difference `push - F S^-1 F' G push`, which cancels where G is large.
    """
    system = jnp.eye(len(gram), dtype=gram.dtype) + factor @ (factor.T @ gram)
    return push / system[0] if system.shape == (1, 1) else jnp.linalg.solve(system, push)
