"""A product is its parts, side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import Categorical, Gaussian, Multinomial, Poisson, Product, in_natural_coordinates

PARTS = (Categorical(3), Gaussian(np.diag([1.0, 4.0])), Poisson(), Multinomial(4, 2))
FAMILY = Product(*PARTS)
NATURAL = jnp.array([0.3, -1.0, 0.5, 0.2, 1.2, -0.4])
EVENT = jnp.array([2.0, 0.1, -0.7, 3.0, 1.0, 3.0])
NATURALS = [NATURAL[:2], NATURAL[2:4], NATURAL[4:5], NATURAL[5:]]
EVENTS = [jnp.array(2), EVENT[1:3], jnp.array(3), jnp.array([1, 3])]


def test_shapes_add_up():
    assert (FAMILY.dim, FAMILY.raw_dim, FAMILY.event_shape) == (6, 6, (6,))


def test_log_prob_adds_up(rtol):
    """Discrete parts read their float entries of y as the integers they are."""
    parts = [part.log_prob(nu, y) for part, nu, y in zip(PARTS, NATURALS, EVENTS, strict=True)]
    np.testing.assert_allclose(FAMILY.log_prob(NATURAL, EVENT), sum(parts), rtol=rtol)


def test_score_and_root_are_the_parts(rtol):
    scores = [part.score(raw, y) for part, raw, y in zip(PARTS, NATURALS, EVENTS, strict=True)]
    roots = [part.root(raw) for part, raw in zip(PARTS, NATURALS, strict=True)]
    np.testing.assert_allclose(FAMILY.score(NATURAL, EVENT), jnp.concatenate(scores), rtol=rtol)
    np.testing.assert_allclose(FAMILY.root(NATURAL), jax.scipy.linalg.block_diag(*roots), rtol=rtol)


def test_parts_may_be_in_natural_coordinates(rtol):
    mixed = Product(in_natural_coordinates(Gaussian(2.0)), Gaussian(2.0))
    np.testing.assert_allclose(mixed.link(jnp.array([3.0, 3.0])), [3.0, 1.5], rtol=rtol)


def test_a_wrong_length_is_named():
    with pytest.raises(ValueError, match=r"natural: the parts take \[2, 2, 1, 1\] entries, 6 in all; got shape \(5,\)"):
        FAMILY.mean(jnp.zeros(5))


def test_products_nest(rtol):
    nested = Product(PARTS[0], Product(*PARTS[1:]))
    np.testing.assert_allclose(nested.log_prob(NATURAL, EVENT), FAMILY.log_prob(NATURAL, EVENT), rtol=rtol)
    np.testing.assert_allclose(nested.noise_root(NATURAL), FAMILY.noise_root(NATURAL), rtol=rtol)
