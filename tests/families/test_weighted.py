"""An observation of weight w says w times what it says."""

import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import Bernoulli, Gaussian, Weighted

RAW = jnp.array([0.3])


@pytest.mark.parametrize("family", [Gaussian(2.0), Bernoulli()])
def test_everything_an_observation_says_is_multiplied(family, rtol):
    own, weighted = family.observe(RAW, jnp.array(1.0)), Weighted(family).observe(RAW, jnp.array([1.0, 2.5]))
    np.testing.assert_allclose(weighted.score, 2.5 * own.score, rtol=rtol)
    np.testing.assert_allclose(weighted.root @ weighted.root.T, 2.5 * own.root @ own.root.T, rtol=rtol)
    np.testing.assert_allclose(weighted.log_prob, 2.5 * own.log_prob, rtol=rtol)


@pytest.mark.parametrize("y", [[1.0, 0.0], [jnp.nan, 1.0], [1.0, jnp.nan]])
def test_no_weight_or_no_value_is_no_observation(y):
    nothing = Weighted(Bernoulli()).observe(RAW, jnp.array(y))
    assert not nothing.present.any()
    assert (float(nothing.score[0]), float(nothing.root[0, 0]), float(nothing.log_prob)) == (0, 0, 0)


def test_complaints():
    with pytest.raises(ValueError, match="Weighted takes families of one number"):
        Weighted(Gaussian(np.eye(2)))
    with pytest.raises(ValueError, match="with a weight of at least 0"):
        Weighted(Bernoulli()).check_targets(np.array([[1.0, -1.0]]))
