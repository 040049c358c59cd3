"""What every file does with P, J, R: positive definite matrices, by Cholesky (NaN where one is not)."""

import jax.numpy as jnp

from natkal import linalg
from natkal.typing import Array, Float


def solve(matrix: Float[Array, "p p"], right: Float[Array, "p *m"]) -> Float[Array, "p *m"]:
    """M^-1 b for a positive definite M."""
    return linalg.solve(matrix, right)


def inverse(matrix: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """M^-1 for a positive definite M, where an equation of the paper speaks of the inverse itself."""
    return solve(matrix, jnp.eye(matrix.shape[0], dtype=matrix.dtype))
