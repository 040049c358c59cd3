"""The small algebra of one observation, in the m coordinates of its rows: the only matrices that are ever factored."""

import jax
import jax.numpy as jnp

from natkal.typing import Array, Float


def innovation_root(gram: Float[Array, "m m"], factor: Float[Array, "m r"]) -> Float[Array, "r r"]:
    """L with L L' = S = I + F' G F, whose eigenvalues are at least 1; written out where S is 1 x 1 or 2 x 2."""
    innovation = jnp.eye(factor.shape[1], dtype=gram.dtype) + factor.T @ gram @ factor
    if innovation.shape == (1, 1):
        return jnp.sqrt(innovation)
    if innovation.shape == (2, 2):
        first = jnp.sqrt(innovation[0, 0])
        below = innovation[1, 0] / first
        second = jnp.sqrt(innovation[1, 1] - jnp.square(below))
        return jnp.stack([jnp.stack([first, jnp.zeros_like(first)]), jnp.stack([below, second])])
    return jnp.linalg.cholesky(innovation)


def lower_solve(lower: Float[Array, "r r"], right: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """L^-1 right, by inverting the r x r factor alone (a triangular solve over p columns is far slower)."""
    if lower.shape == (1, 1):
        return right / lower
    if lower.shape == (2, 2):
        first = right[0] / lower[0, 0]
        return jnp.stack([first, (right[1] - lower[1, 0] * first) / lower[1, 1]])
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
    if system.shape == (1, 1):
        return push / system[0]
    if system.shape == (2, 2):  # Cramer's rule: the determinant is at least 1
        (a, b), (c, d) = system[0], system[1]
        return jnp.stack([d * push[0] - b * push[1], a * push[1] - c * push[0]]) / (a * d - b * c)
    return jnp.linalg.solve(system, push)
