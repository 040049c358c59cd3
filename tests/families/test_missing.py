"""A vector with missing entries counts as the marginal law of the others, in either coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import natkal as nk
from natkal.families import Gaussian, Product, Weighted, in_natural_coordinates

COV = np.array([[1.0, 0.6, 0.2], [0.6, 2.0, -0.3], [0.2, -0.3, 0.5]])
MEAN = np.array([0.4, -1.0, 2.0])
NATURAL = np.linalg.solve(COV, MEAN)


@pytest.mark.parametrize("seen", [[0, 2], [1], [0, 1, 2], []])
def test_natural_coordinates_see_the_marginal(seen: list[int], rtol: float) -> None:
    """Log p is SciPy's marginal density, the score its gradient in nu, the root that of its Fisher matrix in nu."""
    family = in_natural_coordinates(Gaussian(COV))
    target = np.full(3, np.nan)
    target[seen] = np.array([1.0, 0.3, -2.0])[seen]
    found = family.observe(jnp.asarray(NATURAL), jnp.asarray(target))
    block = COV[np.ix_(seen, seen)]
    residual = (target - MEAN)[seen]
    log_prob = scipy.stats.multivariate_normal(MEAN[seen], block).logpdf(target[seen]) if seen else 0.0
    to_natural = COV[:, seen]  # d m_seen / d nu, transposed
    close = {"rtol": 10 * rtol, "atol": 10 * rtol}
    np.testing.assert_allclose(found.log_prob, log_prob, **close)
    np.testing.assert_allclose(found.score, to_natural @ np.linalg.solve(block, residual), **close)
    np.testing.assert_allclose(found.root @ found.root.T, to_natural @ np.linalg.solve(block, to_natural.T), **close)
    assert bool(found.present.all()) == bool(seen)


def test_targets_with_a_gap_are_possible_and_infinite_ones_are_not() -> None:
    family = in_natural_coordinates(Gaussian(COV))
    family.check_targets(np.array([[1.0, np.nan, 2.0]]))
    with pytest.raises(ValueError, match="is outside"):
        family.check_targets(np.array([[np.inf, np.nan, 2.0]]))


def test_a_product_in_natural_coordinates_passes_gaps_on(rtol: float) -> None:
    family = in_natural_coordinates(Product(Gaussian(COV), Gaussian(2.0)))
    natural = jnp.asarray(np.append(NATURAL, 0.3))
    alone = in_natural_coordinates(Gaussian(COV)).observe(jnp.asarray(NATURAL), jnp.array([1.0, jnp.nan, 0.0]))
    found = family.observe(natural, jnp.array([1.0, jnp.nan, 0.0, jnp.nan]))
    np.testing.assert_allclose(found.score, np.append(alone.score, 0.0), rtol=rtol)
    np.testing.assert_allclose(found.log_prob, alone.log_prob, rtol=rtol)


def test_a_weight_counts_in_natural_coordinates(rtol: float) -> None:
    """The Fisher matrix of p(y)^w is w times that of p(y), whatever the coordinates."""
    family = in_natural_coordinates(Weighted(Gaussian(2.0)))
    found = family.observe(jnp.array([0.5]), jnp.array([3.0, 0.25]))
    np.testing.assert_allclose(found.score, [0.25 * (3.0 - 1.0)], rtol=rtol)
    np.testing.assert_allclose(found.root @ found.root.T, [[0.25 * 2.0]], rtol=rtol)
    assert not family.observe(jnp.array([0.5]), jnp.array([3.0, 0.0])).present.any()


def test_a_sampled_fisher_matrix_of_a_gap_is_that_of_the_marginal() -> None:
    """Draws miss what the observation misses: a correlated entry that is not there must not sharpen the others."""
    family, target = Gaussian(COV), jnp.array([1.0, jnp.nan, -2.0])
    raw = jnp.asarray(MEAN)
    observed = family.observe(raw, target)
    factor = jax.jit(lambda key: nk.sampled(20_000).factor(family, raw, observed, target, key))(jax.random.key(0))
    np.testing.assert_allclose(factor @ factor.T, observed.root @ observed.root.T, atol=0.1)
