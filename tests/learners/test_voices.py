"""Voices against closed forms: unknown noise is Bayesian regression, distribution functions are scipy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import natkal as nk
from natkal.learners.mixture import Mixture, distribution, quantile
from natkal.learners.predictive import Spread, Student, StudentLaw, student_law, voices_for

WIDTH = 3


def test_unknown_noise_is_bayesian_linear_regression(rtol):
    """Predictive t of the normal-inverse-gamma posterior, observation by observation."""
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(30, WIDTH))
    targets = inputs @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=30)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(WIDTH), nk.families.Gaussian(1.0))
    bank = nk.bank([nk.online(model, prior_cov=4.0)], voices=Student((np.inf,), (1.0,)), share=0.0)
    _, info = nk.run(bank, bank.init(jnp.zeros(WIDTH)), inputs, targets)
    precision, moment, count, squares = np.eye(WIDTH) / 4, np.zeros(WIDTH), 1.0, 1.0
    for row, (u, y) in enumerate(zip(inputs, targets, strict=True)):
        cov = np.linalg.inv(precision)
        centre, variance = u @ cov @ moment, 1 + u @ cov @ u
        law = scipy.stats.t(df=count, loc=centre, scale=np.sqrt(variance * squares / count))
        np.testing.assert_allclose(info.log_prob[row], law.logpdf(y), rtol=100 * rtol, atol=100 * rtol)
        squares, count = squares + (y - centre) ** 2 / variance, count + 1
        precision, moment = precision + np.outer(u, u), moment + y * u


@pytest.mark.parametrize(
    ("family", "law", "oracle"),
    [
        (nk.families.Poisson(), Spread(jnp.asarray([2.5]), jnp.asarray(jnp.inf)), scipy.stats.poisson(2.5)),
        (nk.families.Poisson(), Spread(jnp.asarray([2.5]), jnp.asarray(3.0)), scipy.stats.nbinom(3.0, 3.0 / 5.5)),
        (nk.families.Gamma(2.0), Spread(jnp.asarray([2.5]), jnp.asarray(4.0)), scipy.stats.gamma(4.0, scale=2.5 / 4)),
        (
            nk.families.Gaussian(1.0),
            student_law(jnp.asarray([1.0]), jnp.asarray([[4.0]]), 0.5, 5.0),
            scipy.stats.t(5.0, loc=1.0, scale=1.0),
        ),
    ],
    ids=["poisson", "negative binomial", "gamma", "student"],
)
def test_laws_are_those_of_scipy(family, law, oracle, rtol):
    voices = voices_for(family)
    points = np.array([0.0, 1.0, 2.0, 5.0]) if hasattr(oracle.dist, "pmf") else np.array([0.3, 1.0, 2.0, 5.0])
    density = oracle.logpmf if hasattr(oracle.dist, "pmf") else oracle.logpdf
    for point in points:
        value = jnp.asarray(point)
        np.testing.assert_allclose(voices.log_prob(law, value), density(point), rtol=1e3 * rtol)
        close = 4e-4 if isinstance(law, StudentLaw) else 1e3 * rtol
        np.testing.assert_allclose(voices.cdf(law, value), oracle.cdf(point), atol=close)
    moments = voices.moments(law)
    np.testing.assert_allclose(moments.mean[0], oracle.mean(), rtol=1e3 * rtol)
    np.testing.assert_allclose(moments.cov[0, 0], oracle.var(), rtol=1e3 * rtol)


def test_quantiles_undo_the_distribution_function():
    voices = voices_for(nk.families.Gaussian(1.0))
    one, other = (
        student_law(jnp.asarray([mean]), jnp.ones((1, 1)), width, 4.0) for mean, width in ((0.0, 1.0), (5.0, 0.1))
    )
    laws = jax.tree.map(lambda a, b: jnp.stack([a, b])[:, None], one, other)
    mixture = Mixture(
        mean=jnp.asarray([2.0 * 2.5 + 1]),
        total_cov=jnp.asarray([[4 * 7.3]]),
        weights=jnp.asarray([[0.5], [0.5]]),
        laws=laws,
        location=jnp.asarray(1.0),
        scale=jnp.asarray(2.0),
    )
    find = jax.jit(lambda p: quantile(voices, mixture, p, whole=False))
    for probability in (0.05, 0.4, 0.95):
        np.testing.assert_allclose(distribution(voices, mixture, find(probability)), probability, atol=1e-4)


def test_missing_entries_of_a_vector_say_nothing(rtol):
    voices = Student((np.inf,), (1.0,))
    cov = jnp.asarray([[2.0, 0.5], [0.5, 1.0]])
    both = student_law(jnp.asarray([1.0, 2.0]), cov, 1.5, 5.0)
    first = student_law(both.mean[:1], cov[:1, :1], both.width, both.freedom)
    np.testing.assert_allclose(
        voices.log_prob(both, jnp.asarray([0.3, jnp.nan])), voices.log_prob(first, jnp.asarray(0.3)), rtol=10 * rtol
    )
