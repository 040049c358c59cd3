"""The small algebra of one observation, in the m coordinates of its rows: the only matrices that are ever factored."""

import jax.numpy as jnp

from natkal import linalg
from natkal.curvature.base import Response, Solved
from natkal.typing import Array, Float


def innovation(gram: Float[Array, "m m"], factor: Float[Array, "m r"]) -> linalg.Factor:
    """L with L L' = S = I + F' G F, whose eigenvalues are at least 1."""
    return linalg.cholesky(jnp.eye(factor.shape[1], dtype=gram.dtype) + factor.T @ gram @ factor)


def correction(gram: Float[Array, "m m"], factor: Float[Array, "m r"]) -> Float[Array, "r m"]:
    """`L^-1 F'` with `L L' = S`: then `P <- P - U'U` for `U = L^-1 F' rows P`."""
    return innovation(gram, factor).whiten(factor.T)


def attenuated(gram: Float[Array, "m m"], factor: Float[Array, "m r"], push: Float[Array, " m"]) -> Float[Array, " m"]:
    """x = (I + F F' G)^-1 push, so that P_new rows' push = P rows' x."""
    return solved(gram, factor, push).weights


def solved(gram: Float[Array, "m m"], factor: Float[Array, "m r"], push: Float[Array, " m"]) -> Solved:
    """L, L^-1 F' and x = (I + F F' G)^-1 push, from one factorisation of S.

    `push - F S^-1 F' G push` would cancel where G is large. So push is split into F a + q, a by least squares, and

        x = q + F S^-1 (a - F' G q)

    whatever a is. As q is orthogonal to F, the two terms do not cancel, and a needs no more than a few right digits.
    What rounding leaves of the push is solved for once more in the same way.
    """
    root = innovation(gram, factor)
    if len(gram) <= linalg.UNROLLED:
        system = jnp.eye(len(gram), dtype=gram.dtype) + factor @ (factor.T @ gram)
        weights = linalg.pivoted_solve(system, push)
    else:
        least = linalg.semidefinite(factor.T @ factor)

        def solve(push: Float[Array, " m"]) -> Float[Array, " m"]:
            along = least.unwhiten(least.whiten(factor.T @ push))
            rest = push - factor @ along
            return rest + factor @ root.unwhiten(root.whiten(along - factor.T @ (gram @ rest)))

        first = solve(push)
        weights = first + solve(push - first - factor @ (factor.T @ (gram @ first)))
    return Solved(root=root.triangle(), change=root.whiten(factor.T), weights=weights)


def conditioned(answer: Response, gram: Float[Array, "m m"]) -> Solved:
    """What the answer asks of the m x m algebra, unless whoever answered has solved it already."""
    return solved(gram, answer.factor, answer.push) if answer.solved is None else answer.solved
