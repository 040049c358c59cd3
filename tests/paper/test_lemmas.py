"""Prop. 6, Lemmas 7 to 10 and the Appendix, each on its own, on random matrices and at random parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.compiling.policy import run_once
from natkal.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Exponential,
    Gamma,
    Gaussian,
    GaussianUnknownVariance,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
)
from natkal.paper import appendix, fisher, gradient, kalman
from natkal.paper.support import finite_support

FAMILIES = [
    (Gaussian(0.5), [0.4]),
    (Gaussian(np.array([[1.0, 0.3], [0.3, 0.5]])), [0.4, -1.0]),
    (GaussianUnknownVariance(), [0.4, 0.2]),
    (Bernoulli(), [0.7]),
    (Categorical(3), [0.5, -0.4]),
    (Binomial(5), [0.3]),
    (Multinomial(3, 3), [0.5, -0.4]),
    (Poisson(), [0.6]),
    (NegativeBinomial(3.0), [0.6]),
    (Exponential(), [0.3]),
    (Gamma(2.0), [0.3]),
    (Product(Bernoulli(), Categorical(3)), [0.7, 0.5, -0.4]),
]
FINITE = [family for family, _ in FAMILIES if finite_support(family) is not None]


def facts(family, raw):
    """Everything the lemmas speak of, for one family at one point: by definition, and by formula."""
    natural = family.link(jnp.array(raw))
    A = jnp.asarray(np.random.default_rng(2).normal(size=(len(raw), 4)))
    s, mean = jnp.zeros(4), family.mean(natural)

    def h(s, u):
        return family.mean(family.link(jnp.array(raw) + jnp.tanh(A @ s)))

    def f(y):
        return jnp.exp(-0.3 * jnp.sum(family.sufficient_statistic(y) ** 2))

    def compute(key):
        y = family.sample(key, natural)
        filter_ = kalman.ExtendedKalmanFilter(kalman.stay, h, family)
        after = filter_.step(filter_.init(s, 0.1 * jnp.eye(4)), None, y)
        H, R = kalman.mean_jacobian(h, s, None), kalman.noise_cov(family, mean)
        found = {
            "error": kalman.error(family, mean, y),
            "error from gradient": gradient.error_from_gradient(family, mean, y),
            "step": after.estimate,
            "gradient step": gradient.preconditioned_step(s, after.cov, gradient.loss_gradient(h, family, s, None, y)),
            "information": fisher.information(H, R),
            "fisher": fisher.fisher_of_params(h, family, s, None),
            "fisher by hessian": fisher.fisher_by_hessian(h, family, s, None),
            "fisher of natural": fisher.fisher_of_natural(family, natural),
            "fisher of mean": fisher.fisher_of_mean(family, mean),
        }
        support = finite_support(family)
        if support is not None:
            found |= {
                "probabilities": fisher.probabilities(family, natural, support),
                "statistics": jax.vmap(family.sufficient_statistic)(support),
                "fisher by enumeration": fisher.fisher_by_enumeration(h, family, s, None, support),
                "mean fisher by enumeration": fisher.mean_fisher_by_enumeration(family, mean, support),
                "natural gradient": appendix.natural_gradient_of_expectation(family, mean, f, support),
                "covariance": appendix.covariance_with_statistic(family, mean, f, support),
            }
        return found

    return run_once(compute, jax.random.key(1))


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda pair: repr(pair[0]))
def found(request):
    return facts(*request.param)


@pytest.fixture
def close(rtol):
    def check(value, reference):
        scale = float(jnp.abs(jnp.asarray(reference)).max())
        np.testing.assert_allclose(value, reference, rtol=0, atol=100 * rtol * max(scale, 1e-3))

    return check


def test_lemma_7_errors_are_gradients(found, close):
    close(found["error from gradient"], found["error"])


def test_prop_6_a_kalman_step_is_a_gradient_step(found, close):
    close(found["gradient step"], found["step"])


def test_lemma_10_in_four_ways(found, close):
    """H' R^-1 H = A' Cov(T) A = minus the expected Hessian = the sum over y, where y can be listed."""
    close(found["fisher"], found["information"])
    close(found["fisher by hessian"], found["information"])
    if "probabilities" in found:
        close(found["fisher by enumeration"], found["information"])


def test_the_fisher_matrix_of_the_mean_is_the_inverse_covariance(found, close):
    if "probabilities" not in found:
        close(found["fisher of mean"], np.linalg.inv(found["fisher of natural"]))
        return
    weights, statistics = np.asarray(found["probabilities"]), np.asarray(found["statistics"])
    close(weights.sum(), 1.0)
    centred = statistics - weights @ statistics
    cov = (centred.T * weights) @ centred
    close(found["fisher of natural"], cov)
    close(found["fisher of mean"], np.linalg.inv(cov))
    close(found["mean fisher by enumeration"], np.linalg.inv(cov))


def test_appendix_natural_gradient_of_an_expectation(found, close):
    if "covariance" in found:
        close(found["covariance"], found["natural gradient"])


def test_enough_families_are_enumerated():
    assert len(FINITE) == 5


def random_step(seed):
    rng = np.random.default_rng(seed)
    root, noise = rng.normal(size=(5, 5)), rng.normal(size=(2, 2))
    cov, R = root @ root.T + np.eye(5), noise @ noise.T + np.eye(2)
    H = rng.normal(size=(2, 5))
    K = kalman.gain(jnp.asarray(cov), jnp.asarray(H), jnp.asarray(R))
    return cov, H, R, K, kalman.posterior_cov(jnp.asarray(cov), K, jnp.asarray(H))


@pytest.mark.parametrize("seed", range(3))
def test_lemma_8_gain(seed, rtol):
    _, H, R, K, posterior = random_step(seed)
    np.testing.assert_allclose(K @ R, posterior @ H.T, rtol=100 * rtol, atol=100 * rtol)
    found = gradient.gain_from_posterior(posterior, jnp.asarray(H), jnp.asarray(R))
    np.testing.assert_allclose(found, K, rtol=100 * rtol, atol=100 * rtol)


@pytest.mark.parametrize("seed", range(3))
def test_lemma_9_information_adds(seed, rtol):
    cov, H, R, _, posterior = random_step(seed)
    added = fisher.information(jnp.asarray(H), jnp.asarray(R))
    np.testing.assert_allclose(np.linalg.inv(cov) + added, np.linalg.inv(posterior), rtol=100 * rtol, atol=100 * rtol)


def test_appendix_empirical_covariance(rtol):
    rng = np.random.default_rng(0)
    values, statistics = rng.normal(size=50), rng.normal(size=(50, 3)) + 5
    expected = np.cov(np.column_stack([values, statistics]).T)[0, 1:]
    found = appendix.empirical_covariance(jnp.asarray(values), jnp.asarray(statistics))
    np.testing.assert_allclose(found, expected, rtol=10 * rtol, atol=10 * rtol)


def test_finite_supports():
    assert finite_support(Binomial(3)).tolist() == [0, 1, 2, 3]
    assert sorted(finite_support(Multinomial(2, 2)).tolist()) == [[0, 2], [1, 1], [2, 0]]
    assert finite_support(Product(Bernoulli(), Categorical(3))).shape == (6, 2)
    assert finite_support(Product(Bernoulli(), Poisson())) is None
    assert finite_support(Binomial(1000)) is None
