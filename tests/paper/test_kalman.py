"""Def. 5 and Lemma 9 against plain NumPy, and against the closed-form Bayesian posterior where there is one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import Gaussian, Poisson
from natkal.paper.fading import FadingKalmanFilter
from natkal.paper.information import InformationFilter
from natkal.paper.kalman import ExtendedKalmanFilter, stay

NOISE = np.array([[0.5, 0.1], [0.1, 0.3]])
PROCESS = np.array([[0.02, 0.0, 0.01], [0.0, 0.03, 0.0], [0.01, 0.0, 0.05]])


def f(s, u):
    """A rotation by an angle that depends on the input, and a tanh: nonlinear, with an input."""
    return jnp.stack([s[0] * jnp.cos(u[0]) - s[1] * jnp.sin(u[0]), s[0] * jnp.sin(u[0]) + s[1], jnp.tanh(s[2] + u[1])])


def f_jacobian(s, u):
    cos, sin = np.cos(u[0]), np.sin(u[0])
    return np.array([[cos, -sin, 0.0], [sin, 1.0, 0.0], [0.0, 0.0, 1 - np.tanh(s[2] + u[1]) ** 2]])


def h(s, u):
    return jnp.stack([s[0] * s[1] + u[0], s[1] + s[2] ** 2])


def h_jacobian(s, u):
    return np.array([[s[1], s[0], 0.0], [0.0, 1.0, 2 * s[2]]])


def textbook(s, cov, inputs, targets, process_noise):
    """Def. 5 in NumPy, derivatives by hand."""
    for t, (u, y) in enumerate(zip(inputs, targets, strict=True), start=1):
        F = f_jacobian(s, u)
        predicted, spread = np.asarray(f(s, u)), F @ cov @ F.T + process_noise(t)
        H = h_jacobian(predicted, u)
        K = spread @ H.T @ np.linalg.inv(H @ spread @ H.T + NOISE)
        cov = (np.eye(3) - K @ H) @ spread
        s = predicted + K @ (y - np.asarray(h(predicted, u)))
    return s, cov


def stream(steps=40):
    rng = np.random.default_rng(0)
    return rng.normal(size=(steps, 2)) * 0.5, rng.normal(size=(steps, 2))


def run(filter_, state, inputs, targets):
    rows = jnp.asarray(inputs), jnp.asarray(targets)
    return jax.jit(lambda state: jax.lax.scan(lambda s, row: (filter_.step(s, *row), None), state, rows)[0])(state)


@pytest.mark.parametrize(
    ("Q", "reference"),
    [
        (PROCESS, lambda t: PROCESS),
        (lambda t: PROCESS / t, lambda t: PROCESS / t),
        (0.1, lambda t: 0.1 * np.eye(3)),
        (None, lambda t: np.zeros((3, 3))),
        (0, lambda t: np.zeros((3, 3))),
    ],
    ids=["matrix", "function of t", "number", "none", "zero"],
)
@pytest.mark.parametrize("form", ["covariance", "information"])
def test_both_forms_are_the_textbook_filter(form, Q, reference, rtol):
    inputs, targets = stream()
    start, cov = np.array([0.3, -0.2, 0.1]), np.diag([1.0, 0.5, 0.2])
    expected, expected_cov = textbook(start, cov, inputs, targets, reference)
    if form == "covariance":
        kalman = ExtendedKalmanFilter(f, h, Gaussian(NOISE), Q)
        end = run(kalman, kalman.init(jnp.asarray(start), jnp.asarray(cov)), inputs, targets)
        found_cov = end.cov
    else:
        kalman = InformationFilter(f, h, Gaussian(NOISE), Q)
        end = run(kalman, kalman.init(jnp.asarray(start), jnp.asarray(np.linalg.inv(cov))), inputs, targets)
        found_cov = np.linalg.inv(end.precision)
    assert int(end.steps) == len(targets)
    np.testing.assert_allclose(end.estimate, expected, rtol=10 * rtol, atol=10 * rtol)
    np.testing.assert_allclose(found_cov, expected_cov, rtol=10 * rtol, atol=10 * rtol)


def test_a_poisson_step_by_hand(rtol):
    """One count with log rate s: y-hat = R = exp(s), H = exp(s), so K = P m / (P m^2 + m)."""
    kalman = ExtendedKalmanFilter(stay, lambda s, u: jnp.exp(s), Poisson())
    state = kalman.step(kalman.init(jnp.array([0.5]), jnp.array([[2.0]])), None, jnp.array(3))
    m = np.exp(0.5)
    gain = 2 * m / (2 * m**2 + m)
    np.testing.assert_allclose(state.estimate, [0.5 + gain * (3 - m)], rtol=rtol)
    np.testing.assert_allclose(state.cov, [[2 * (1 - gain * m)]], rtol=rtol)


def linear_gaussian(steps, size=4):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(steps, 2, size))
    targets = inputs @ rng.normal(size=size) + rng.normal(size=(steps, 2)) @ np.linalg.cholesky(NOISE).T
    return inputs, targets


def weighted_posterior(inputs, targets, prior_mean, prior_precision, weights):
    """The maximum and the Hessian of sum_t w_t ln N(y_t; u_t s, NOISE) - |s - prior_mean|^2 / 2 in the prior's norm."""
    R_inverse = np.linalg.inv(NOISE)
    precision = prior_precision + np.einsum("t,tki,kl,tlj->ij", weights, inputs, R_inverse, inputs)
    pull = prior_precision @ prior_mean + np.einsum("t,tki,kl,tl->i", weights, inputs, R_inverse, targets)
    return np.linalg.solve(precision, pull), np.linalg.inv(precision)


@pytest.mark.float64
def test_a_static_linear_filter_is_the_bayesian_posterior():
    inputs, targets = linear_gaussian(1000)
    kalman = ExtendedKalmanFilter(stay, lambda s, u: u @ s, Gaussian(NOISE))
    end = run(kalman, kalman.init(jnp.ones(4), 2 * jnp.eye(4)), inputs, targets)
    mean, cov = weighted_posterior(inputs, targets, np.ones(4), np.eye(4) / 2, np.ones(1000))
    np.testing.assert_allclose(end.estimate, mean, rtol=1e-10)
    np.testing.assert_allclose(end.cov, cov, rtol=1e-10, atol=1e-14)


@pytest.mark.float64
def test_a_fading_linear_filter_weighs_the_past_by_the_product_of_its_decays():
    """Prop. 3: L_t = ln p(y_t) + (1 - lambda_t) L_{t-1}, L_0 the prior."""
    inputs, targets = linear_gaussian(200)
    lambdas = np.linspace(0.0, 0.03, 200)
    later = np.append(np.cumprod((1 - lambdas)[::-1])[::-1], 1.0)
    mean, cov = weighted_posterior(inputs, targets, np.ones(4), later[0] * np.eye(4) / 2, later[1:])
    table = jnp.asarray(lambdas)
    kalman = FadingKalmanFilter(lambda s, u: u @ s, Gaussian(NOISE), lambda t: table[t - 1])
    end = run(kalman, kalman.init(jnp.ones(4), 2 * jnp.eye(4)), inputs, targets)
    np.testing.assert_allclose(end.estimate, mean, rtol=1e-10)
    np.testing.assert_allclose(end.cov, cov, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("bad", [-0.1, 1.0])
def test_a_fading_out_of_range_is_named(bad):
    with pytest.raises(ValueError, match=rf"fading: .*\[0, 1\), got {bad:g}"):
        FadingKalmanFilter(h, Gaussian(NOISE), bad)
