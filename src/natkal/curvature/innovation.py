"""The small algebra of one observation, in the m coordinates of its rows: the only matrices that are ever factored."""

import jax
import jax.numpy as jnp

from natkal.typing import Array, Float

UNROLLED = 6
"""Matrices up to this size are factored and solved in plain arithmetic: calling LAPACK takes longer than its work, and
keeps a loop over a small model from being compiled as one function."""


def innovation_root(gram: Float[Array, "m m"], factor: Float[Array, "m r"]) -> Float[Array, "r r"]:
    """L with L L' = S = I + F' G F, whose eigenvalues are at least 1."""
    innovation = jnp.eye(factor.shape[1], dtype=gram.dtype) + factor.T @ gram @ factor
    if len(innovation) > UNROLLED:
        return jnp.linalg.cholesky(innovation)
    columns, rest = [], innovation
    while len(rest):
        column = rest[:, 0] / jnp.sqrt(rest[0, 0])
        columns.append(jnp.pad(column, (len(innovation) - len(rest), 0)))
        rest = rest[1:, 1:] - column[1:, None] * column[None, 1:]
    return jnp.stack(columns, axis=1)


def lower_solve(lower: Float[Array, "r r"], right: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """L^-1 right, by inverting the r x r factor alone (a triangular solve over p columns is far slower)."""
    if len(lower) > UNROLLED:
        identity = jnp.eye(len(lower), dtype=lower.dtype)
        return jax.scipy.linalg.solve_triangular(lower, identity, lower=True) @ right
    solved = []
    for row, value in zip(lower, right, strict=True):
        known = sum((row[j] * solved[j] for j in range(len(solved))), jnp.zeros_like(value))
        solved.append((value - known) / row[len(solved)])
    return jnp.stack(solved)


def correction(gram: Float[Array, "m m"], factor: Float[Array, "m r"]) -> Float[Array, "r m"]:
    """`L^-1 F'` with `L L' = S`: then `P <- P - U'U` for `U = L^-1 F' rows P`."""
    return lower_solve(innovation_root(gram, factor), factor.T)


def attenuated(gram: Float[Array, "m m"], factor: Float[Array, "m r"], push: Float[Array, " m"]) -> Float[Array, " m"]:
    """x = (I + F F' G)^-1 push, so that P_new rows' push = P rows' x.

    Solved for, not written as the difference `push - F S^-1 F' G push`, which cancels where G is large.
    """
    system = jnp.eye(len(gram), dtype=gram.dtype) + factor @ (factor.T @ gram)
    return solve(system, push)


def solve(system: Float[Array, "m m"], right: Float[Array, " m"]) -> Float[Array, " m"]:
    """`system^-1 right`; small ones by elimination with row exchanges, since a leading minor may vanish."""
    if len(system) > UNROLLED:
        return jnp.linalg.solve(system, right)
    rows, rest = [], jnp.concatenate([system, right[:, None]], axis=1)
    while len(rest):
        largest = jnp.argmax(jnp.abs(rest[:, 0]))
        row = rest[largest]
        rows.append(row)
        others = rest.at[largest].set(rest[0])[1:]
        rest = others[:, 1:] - others[:, :1] / row[0] * row[None, 1:]
    solved = jnp.zeros(0, right.dtype)
    for row in reversed(rows):
        value = (row[-1] - jnp.sum(row[1:-1] * solved)) / row[0]
        solved = jnp.concatenate([value[None], solved])
    return solved
