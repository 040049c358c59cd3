"""Filters and regressions that others wrote."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels
import statsmodels.api as sm
from filterpy.kalman import ExtendedKalmanFilter
from sklearn.linear_model import BayesianRidge

import natkal as nk

pytestmark = pytest.mark.float64


def trajectory(learner, params, inputs, targets):
    """The parameters after every step."""

    def body(state, row):
        state, _ = learner.step(state, *row)
        return state, state.params

    return jax.lax.scan(body, learner.init(params), (jnp.asarray(inputs), jnp.asarray(targets)))[1]


def test_recursive_least_squares_of_r_at_all_201_steps() -> None:
    folder = Path(statsmodels.__file__).parent / "regression" / "tests" / "results"
    certified = np.genfromtxt(folder / "results_rls_R.csv", delimiter=",", skip_header=1)[:, :2]
    data = sm.datasets.macrodata.load_pandas().data
    inputs = np.column_stack([np.ones(len(data)), data["m1"]])
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Gaussian(1.0))
    learner = nk.online(model, prior_cov=None, curvature=nk.information())
    ours = np.asarray(trajectory(learner, jnp.zeros(2), inputs, data["cpi"].to_numpy()))[2:]
    assert len(ours) == len(certified) == 201
    np.testing.assert_allclose(ours, certified, rtol=1e-9)


@pytest.mark.parametrize("curvature", [nk.dense(), nk.square_root(), nk.information()], ids=lambda c: type(c).__name__)
def test_bayesian_ridge_at_fixed_hyperparameters(curvature) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 5))
    targets = inputs @ rng.normal(size=5) + 0.3 * rng.normal(size=200)
    noise_precision, weight_precision = 4.0, 0.5
    ridge = BayesianRidge(
        fit_intercept=False, max_iter=1, alpha_init=noise_precision, lambda_init=weight_precision, compute_score=False
    )
    ridge.fit(inputs, targets)
    # scikit-learn reports the coefficients of the last hyperparameters it tried; the ones it keeps are alpha_, lambda_.
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(5), nk.families.Gaussian(1 / ridge.alpha_))
    learner = nk.online(model, prior_cov=1 / ridge.lambda_, curvature=curvature)
    state, _ = nk.run(learner, learner.init(jnp.zeros(5)), inputs, targets)
    np.testing.assert_allclose(state.params, ridge.coef_, rtol=1e-11)
    np.testing.assert_allclose(learner.covariance(state), ridge.sigma_, rtol=0, atol=1e-12)


@pytest.mark.parametrize("curvature", [nk.dense(), nk.square_root()], ids=lambda c: type(c).__name__)
def test_nonlinear_filter_of_filterpy(curvature) -> None:
    """A damped pendulum seen through its horizontal position, with process noise: Def. 5 with f, Q and a Gaussian."""
    step, noise = 0.05, 0.04
    process_noise = np.diag([1e-4, 4e-4])

    def transition(s, u):
        return jnp.stack([s[0] + step * s[1], s[1] - step * (9.8 * jnp.sin(s[0]) + 0.2 * s[1]) + step * u])

    def readout(s, u):
        return jnp.sin(s[0])[None]

    rng = np.random.default_rng(0)
    forcing, targets = rng.normal(size=300), 0.8 * np.sin(np.arange(300) / 8) + 0.2 * rng.normal(size=300)
    pendulum = nk.state_filter(
        transition, readout, nk.families.Gaussian(noise), process_noise=jnp.asarray(process_noise), curvature=curvature
    )
    state = pendulum.init(jnp.array([0.5, 0.0]), jnp.array([0.2, 0.3]))
    theirs = ExtendedKalmanFilter(dim_x=2, dim_z=1)
    theirs.x, theirs.P = np.array([[0.5], [0.0]]), np.diag([0.2, 0.3])
    theirs.R, theirs.Q = np.array([[noise]]), process_noise
    slope = jax.jit(jax.jacfwd(transition))
    for u, y in zip(forcing, targets, strict=True):
        state, _ = pendulum.step(state, u, y)
        flat = jnp.asarray(theirs.x[:, 0])
        theirs.F = np.asarray(slope(flat, u))
        theirs.x = np.asarray(transition(flat, u))[:, None]
        theirs.P = theirs.F @ theirs.P @ theirs.F.T + theirs.Q
        theirs.update(
            np.array([[y]]),
            HJacobian=lambda x: np.array([[np.cos(x[0, 0]), 0.0]]),
            Hx=lambda x: np.array([[np.sin(x[0, 0])]]),
        )
        np.testing.assert_allclose(state.estimate, theirs.x[:, 0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(pendulum.covariance(state), theirs.P, rtol=0, atol=1e-11)
