"""Several steps ahead, against linear Gaussian theory in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

A, B, NOISE, Q, W0, PRIOR = 0.7, 0.5, 0.3, 0.05, 0.2, 0.4
HORIZON = 5
WRAPS = {"model": lambda model: model, "sigma": lambda model: nk.unscented(model, sd=0.1)}


def linear(**options):
    """s' = a s + b u with b the one parameter, y = s + noise."""
    model = nk.recurrent_model(
        lambda b, s, u: A * s + b * u, lambda b, s, u: s, jnp.array([B]), jnp.zeros(1), nk.families.Gaussian(NOISE),
        **options,
    )  # fmt: skip
    learner = nk.online(model, prior_cov=PRIOR)
    return learner, learner.init(model.params)


def test_one_step_ahead_is_the_prediction(rtol) -> None:
    model = nk.recurrent_network(jax.random.key(0), nk.cells.gru(3), 2, nk.families.Poisson(), process_noise=0.01)
    learner = nk.online(model, prior_cov=0.1)
    rng = np.random.default_rng(0)
    state, _ = nk.run(learner, learner.init(model.params), rng.normal(size=(20, 2)), rng.poisson(1.0, size=20))
    u = rng.normal(size=(3, 2))
    ahead, now = learner.forecast(state, u, 3), learner.predict(state, u[0])
    for rolled, predicted in zip(jax.tree.leaves(ahead), jax.tree.leaves(now), strict=True):
        np.testing.assert_allclose(rolled[0], predicted, rtol=100 * rtol, atol=100 * rtol)


def test_known_inputs(rtol) -> None:
    """s_h = a^h s + b sum_j a^(h-j) u_j: linear in b, s and the process noise, so the first order is exact."""
    learner, state = linear(state_cov=W0, process_noise=Q)
    u = np.linspace(1.0, 2.0, HORIZON)[:, None]
    found = learner.forecast(state, u, HORIZON)
    weights = np.array([sum(A ** (h - j) * u[j, 0] for j in range(h + 1)) for h in range(HORIZON)])
    noise = np.array([sum(A ** (2 * j) for j in range(h + 1)) for h in range(HORIZON)])
    variance = PRIOR * weights**2 + W0 * A ** (2.0 * np.arange(1, HORIZON + 1)) + Q * noise + NOISE
    np.testing.assert_allclose(found.mean[:, 0], B * weights, rtol=10 * rtol)
    np.testing.assert_allclose(found.cov[:, 0, 0], variance, rtol=10 * rtol)


def test_fed_back(rtol) -> None:
    """u = the last y: y_h = a s + b y_{h-1} + noise; mean and variance by the linear recursion on (s, y)."""
    learner, state = linear(process_noise=Q)
    found = learner.forecast(state, np.array([2.0]), HORIZON, feed=lambda mean: mean)

    # d/db by hand: m_h and its derivative, then the covariance of (s, y) given b.
    s, y, ds, dy = 0.0, 2.0, 0.0, 0.0
    cov = np.zeros((2, 2))  # of (s, y), y the value fed in next
    for h in range(HORIZON):
        s, ds = A * s + B * y, A * ds + y + B * dy
        step = np.array([[A, B], [A, B]])
        cov = step @ cov @ step.T + Q * np.ones((2, 2)) + np.diag([0.0, NOISE])
        y, dy = s, ds
        np.testing.assert_allclose(found.mean[h, 0], s, rtol=10 * rtol)
        np.testing.assert_allclose(found.cov[h, 0, 0], PRIOR * ds**2 + cov[1, 1], rtol=10 * rtol)


def test_complaints() -> None:
    learner, state = linear()
    with pytest.raises(ValueError, match=r"inputs: shape \(2, 1\) does not have one row for each of 3 steps ahead"):
        learner.forecast(state, np.ones((2, 1)), 3)
    with pytest.raises(ValueError, match="horizon: must be at least 1, got 0"):
        learner.forecast(state, np.ones((0, 1)), 0)


def static_network(**options):
    params = nk.mlp_params(jax.random.key(0), (2, 3, 1))
    learner = nk.online(nk.static_model(nk.mlp_apply, params, nk.families.Poisson()), prior_cov=0.1, **options)
    rng = np.random.default_rng(0)
    state, _ = nk.run(learner, learner.init(params), rng.normal(size=(20, 2)), rng.poisson(1.0, size=20))
    return learner, state, rng.normal(size=(3, 2))


@pytest.mark.parametrize(
    "wrap", [lambda model: model, lambda model: nk.unscented(model, sd=0.1)], ids=["model", "sigma"]
)
def test_without_memory_it_is_the_prediction_of_each_row(wrap, rtol) -> None:
    plain, state, u = static_network()
    learner = nk.online(wrap(plain.model), prior_cov=0.1)
    ahead = learner.forecast(state, u, 3)
    for step in range(3):
        predicted = jax.tree.leaves(learner.predict(state, u[step]))
        for rolled, one in zip(jax.tree.leaves(ahead), predicted, strict=True):
            np.testing.assert_allclose(rolled[step], one, rtol=100 * rtol, atol=100 * rtol)


@pytest.mark.parametrize(
    "wrap", [lambda model: model, lambda model: nk.unscented(model, sd=0.1)], ids=["model", "sigma"]
)
def test_an_autoregression_fed_its_own_output(wrap, rtol) -> None:
    """y' = a y + noise without memory: mean a^h y, variance P (h a^(h-1) y)^2 + noise sum_j a^2j, as AR theory has it.

    Sigma points see a^h at a - w and a + w, w = sd sqrt(p): the derivative is a finite difference of width w.
    """
    model = nk.static_model(lambda a, u: a * u, jnp.array(A), nk.families.Gaussian(NOISE))
    learner = nk.online(wrap(model), prior_cov=PRIOR)
    found = learner.forecast(learner.init(jnp.array(A)), np.array(2.0), HORIZON, feed=lambda mean: mean)
    steps = np.arange(1, HORIZON + 1)
    noise = NOISE * np.array([sum(A ** (2 * j) for j in range(h)) for h in steps])
    mean, slope = A**steps * 2.0, steps * A ** (steps - 1.0) * 2.0
    if learner.model is not model:
        above, below = (2.0 * (A + sign * 0.1) ** steps for sign in (1, -1))
        mean, slope = (above + below) / 2, (above - below) / 0.2
    np.testing.assert_allclose(found.mean[:, 0], mean, rtol=10 * rtol)
    np.testing.assert_allclose(found.cov[:, 0, 0], PRIOR * slope**2 + noise, rtol=10 * rtol)
