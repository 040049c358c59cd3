"""What a constructor refuses, in the user's words, and what it takes on trust."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import (
    Binomial,
    Categorical,
    Gamma,
    Gaussian,
    Multinomial,
    NegativeBinomial,
    Product,
    from_log_partition,
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Gaussian(-1.0), "cov: must be positive definite.*-1"),
        (lambda: Gaussian(0.0), "cov: must be positive definite.*got 0.0"),
        (lambda: Gaussian(float("nan")), "cov: must be finite, got nan"),
        (lambda: Gaussian(np.ones(3)), r"cov: a vector is ambiguous.*\(3,\)"),
        (lambda: Gaussian(np.ones((2, 3))), r"cov: must be a number or a square matrix, got shape \(2, 3\)"),
        (lambda: Gaussian(np.array([[1.0, 0.5], [0.0, 1.0]])), "cov: must be symmetric"),
        (lambda: Gaussian(np.array([[1.0, 2.0], [2.0, 1.0]])), "cov: must be positive definite.*eigenvalue is -1"),
        (lambda: Binomial(0), "n: must be a whole number of at least 1, got 0"),
        (lambda: Categorical(1), "k: must be a whole number of at least 2, got 1"),
        (lambda: Multinomial(0, 3), "n: must be a whole number of at least 1"),
        (lambda: Multinomial(4, 1), "k: must be a whole number of at least 2"),
        (lambda: NegativeBinomial(0.0), "r: must be positive and finite, got 0.0"),
        (lambda: NegativeBinomial(np.ones(2)), r"r: must be one number, got shape \(2,\)"),
        (lambda: Gamma(float("inf")), "shape: must be positive and finite, got inf"),
        (lambda: Gamma(float("nan")), "shape: must be positive and finite, got nan"),
        (lambda: Product(), "families: a Product needs at least one"),
        (lambda: from_log_partition(jnp.sum, jnp.ravel, dim=0), "dim: must be a whole number of at least 1, got 0"),
        (lambda: from_log_partition(jnp.sum, jnp.ravel, dim=1, raw_dim=2), "raw_dim: without a link it must equal dim"),
        (
            lambda: from_log_partition(jnp.sum, jnp.ravel, dim=1, initial_natural=np.zeros(2)),
            "initial_natural: must have 1 entries, got 2",
        ),
    ],
)
def test_a_wrong_argument_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    "build",
    [Gaussian, NegativeBinomial, Gamma, lambda value: Gaussian(value * jnp.eye(2))],
    ids=["gaussian", "negative binomial", "gamma", "gaussian matrix"],
)
def test_a_parameter_may_be_traced(build):
    """A bank of learners is one vmap over a hyperparameter."""
    values = jnp.array([0.5, 2.0])
    together = jax.vmap(lambda value: build(value).root(jnp.zeros(build(value).raw_dim)))(values)
    apart = [build(float(value)).root(jnp.zeros(build(float(value)).raw_dim)) for value in values]
    np.testing.assert_allclose(together, np.stack(apart), rtol=1e-6)


def test_families_print_what_built_them():
    assert repr(Gaussian(2.0)) == "Gaussian(cov=2.0)"
    assert repr(Categorical(3)) == "Categorical(k=3, minimal=True)"
    assert repr(Product(Binomial(4), Gamma(2.0))) == "Product(Binomial(n=4), Gamma(shape=2.0))"
