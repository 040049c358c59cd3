"""The engine against closed forms nobody here wrote."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm

import natkal as nk


@pytest.mark.float64
def test_linear_gaussian_filter_is_the_bayesian_posterior() -> None:
    rng = np.random.default_rng(0)
    steps, size, noise = 1000, 6, 0.3
    inputs = rng.normal(size=(steps, size))
    targets = inputs @ rng.normal(size=size) + np.sqrt(noise) * rng.normal(size=steps)
    mixing = rng.normal(size=(size, size))
    prior_cov, start = mixing @ mixing.T + np.eye(size), rng.normal(size=size)

    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(size), nk.families.Gaussian(noise))
    learner = nk.online(model, prior_cov=prior_cov)
    state, _ = nk.run(learner, learner.init(jnp.asarray(start)), inputs, targets)

    precision = np.linalg.inv(prior_cov) + inputs.T @ inputs / noise
    mean = np.linalg.solve(precision, np.linalg.solve(prior_cov, start) + inputs.T @ targets / noise)
    np.testing.assert_allclose(state.params, mean, rtol=1e-10)
    np.testing.assert_allclose(learner.covariance(state), np.linalg.inv(precision), rtol=1e-10, atol=1e-14)


@pytest.mark.float64
@pytest.mark.parametrize(
    ("family", "reference"),
    [
        (nk.families.Bernoulli(), sm.families.Binomial()),
        (nk.families.Poisson(), sm.families.Poisson()),
        (nk.families.Gamma(2.0), sm.families.Gamma(sm.families.links.Log())),
    ],
    ids=["logistic", "poisson", "gamma"],
)
def test_relinearised_passes_reach_the_glm_estimate(family, reference) -> None:
    rng = np.random.default_rng(1)
    steps, size = 400, 4
    inputs = np.column_stack([np.ones(steps), rng.normal(size=(steps, size - 1))])
    truth = jnp.asarray([0.3, -0.5, 0.4, 0.2])
    keys = jax.random.split(jax.random.key(0), steps)
    targets = np.asarray(
        jax.vmap(lambda key, u: family.sample(key, family.link((truth @ u)[None])))(keys, jnp.asarray(inputs))
    )
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(size), family)
    state = nk.refine(nk.online(model, prior_cov=1e7), jnp.zeros(size), inputs, targets, passes=12)
    estimate = sm.GLM(targets, inputs, family=reference).fit(tol=1e-14, maxiter=200).params
    np.testing.assert_allclose(state.params, estimate, rtol=1e-8)


@pytest.mark.float64
@pytest.mark.parametrize("rates", [nk.fading(0.05), nk.learning_rate(0.04)], ids=["fading", "rate"])
def test_passes_over_a_linear_stream_are_the_filter(rates) -> None:
    """Fading and a kept prior count in a pass as they do online: on a linear Gaussian model one pass is the filter."""
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(60, 3))
    targets = inputs @ [1.0, -2.0, 0.5] + rng.normal(size=60)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Gaussian(0.5))
    start = jnp.asarray([0.3, -0.2, 0.1])
    learner = nk.online(model, prior_cov=0.7, rates=rates, prior_weight=4.0, curvature=nk.dense(prior_directions=3))
    online, _ = nk.run(learner, learner.init(start), inputs, targets)
    refined = nk.refine(learner, start, inputs, targets, passes=2)
    np.testing.assert_allclose(refined.params, online.params, rtol=1e-10)
    np.testing.assert_allclose(learner.covariance(refined), learner.covariance(online), rtol=1e-10)
