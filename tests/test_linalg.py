"""Our own factorisations against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal import linalg


@pytest.mark.float64
def test_a_gram_matrix_that_is_singular_to_rounding_has_a_root() -> None:
    """Singular values from 1 to eps, in more rows than one block: L L' is the matrix, entry by entry."""
    size, eps = 21, np.finfo(float).eps
    root = jax.jit(lambda matrix: linalg.semidefinite(matrix).triangle())
    for seed in range(100):
        rng = np.random.default_rng(seed)
        turned = np.linalg.qr(rng.normal(size=(size, size)))[0]
        rows = rng.normal(size=(size, size)) @ (eps ** (np.arange(size) / size)[:, None] * turned)
        gram = rows.T @ rows
        lower = np.asarray(root(jnp.asarray(gram)))
        scale = np.sqrt(np.diagonal(gram))
        assert np.max(np.abs(lower @ lower.T - gram) / scale / scale[:, None]) < 5 * size * eps
