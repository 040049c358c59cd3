"""Def. 1 against NumPy, its three Fisher estimates, and Prop. 4 against the objective it claims to optimise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import Bernoulli, Gaussian
from natkal.paper.natural_gradient import exact, monte_carlo, natural_gradient, outer_product
from natkal.paper.prior import PriorKeepingFilter, RegularizedNaturalGradient, fading_at
from natkal.paper.schedules import inverse_sqrt
from tests.paper.test_kalman import NOISE, linear_gaussian, weighted_posterior


def h(params, u):
    return jax.nn.sigmoid(u @ params)[None]


U, Y = np.array([0.5, -1.0, 2.0]), 1
THETA = np.array([0.2, 0.1, -0.3])


def test_one_step_by_hand(rtol):
    """Logistic regression: gradient (p - y) u, Fisher matrix p (1 - p) u u', gamma and eta apart."""
    p = 1 / (1 + np.exp(-U @ THETA))
    fisher = 0.8 * 2 * np.eye(3) + 0.2 * p * (1 - p) * np.outer(U, U)
    params = THETA - 0.1 * np.linalg.solve(fisher, (p - Y) * U)
    learner = natural_gradient(h, Bernoulli(), 0.1, fisher_decay=0.2)
    state = learner.step(learner.init(jnp.asarray(THETA), 2 * jnp.eye(3)), jnp.asarray(U), jnp.asarray(Y))
    np.testing.assert_allclose(state.fisher, fisher, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(state.params, params, rtol=rtol)
    assert int(state.steps) == 1


def test_rates_are_read_at_the_step_they_belong_to(rtol):
    """The first observation is t = 1: eta(1), not eta(0)."""
    table = jnp.array([1.0, 0.25, 0.125])
    scheduled, constant = natural_gradient(h, Bernoulli(), lambda t: table[t]), natural_gradient(h, Bernoulli(), 0.25)
    start = scheduled.init(jnp.asarray(THETA), jnp.eye(3))
    ends = [learner.step(start, jnp.asarray(U), jnp.asarray(Y)) for learner in (scheduled, constant)]
    np.testing.assert_allclose(ends[0].params, ends[1].params, rtol=rtol)


def estimate(rule, key=0, y=Y):
    return rule(h, Bernoulli(), jnp.asarray(THETA), jnp.asarray(U), jnp.asarray(y), jax.random.key(key))


def test_fisher_estimates(rtol):
    p = 1 / (1 + np.exp(-U @ THETA))
    np.testing.assert_allclose(estimate(exact()), p * (1 - p) * np.outer(U, U), rtol=rtol)
    np.testing.assert_allclose(estimate(outer_product()), (1 - p) ** 2 * np.outer(U, U), rtol=10 * rtol)
    # The average over samples is p (1 - p) u u' up to its own standard error, sqrt(p (1-p)) |1 - 2p| / sqrt(n).
    n = 20_000
    ratio = estimate(monte_carlo(n))[0, 0] / U[0] ** 2
    assert abs(ratio - p * (1 - p)) < 4 * np.sqrt(p * (1 - p) / n) * abs(1 - 2 * p)
    # One sample gives p^2 or (1 - p)^2, whatever was observed.
    one = float(estimate(monte_carlo(1), key=3)[0, 0]) / U[0] ** 2
    assert min(abs(one - p**2), abs(one - (1 - p) ** 2)) < 1e-5


def test_samples_differ_from_step_to_step_and_from_key_to_key():
    learner = natural_gradient(h, Bernoulli(), 0.5, fisher=monte_carlo(1))

    def path(key):
        state = learner.init(jnp.asarray(THETA), jnp.eye(3), key)
        rows = jnp.broadcast_to(jnp.asarray(U), (12, 3)), jnp.ones(12, int)
        return jax.lax.scan(lambda s, row: (learner.step(s, *row), s.params), state, rows)[1]

    first, again, other = path(jax.random.key(0)), path(jax.random.key(0)), path(jax.random.key(1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize(("name", "rates"), [("learning_rate", (0.0, None)), ("fisher_decay", (0.5, 1.5))])
def test_a_rate_out_of_range_is_named(name, rates):
    with pytest.raises(ValueError, match=rf"{name}: .*\(0, 1\]"):
        natural_gradient(h, Bernoulli(), *rates)


def test_no_samples_is_an_error():
    with pytest.raises(ValueError, match=r"n: .* got 0"):
        monte_carlo(0)


# -- Prop. 4 -------------------------------------------------------------------------------------------------------


@pytest.mark.float64
@pytest.mark.parametrize("algorithm", [PriorKeepingFilter, RegularizedNaturalGradient])
def test_the_prior_keeps_its_weight(algorithm):
    """For a linear Gaussian model both maximise the weighted log-likelihood + (n + c_t) ln pi, by closed form.

    c_t = prod (1 - lambda) / eta_1 is what P_0 = eta_1 / (1 + n eta_1) Sigma_0 adds to L_0 = 0; it fades away.
    """
    inputs, targets = linear_gaussian(150)
    eta, weight, centre = inverse_sqrt(4.0, 0.4), 3.0, np.array([1.0, -1.0, 0.5, 0.0])
    prior_cov = np.diag([1.0, 0.5, 2.0, 1.0]) + 0.1
    keep = 1 - np.array([float(fading_at(eta, t)) for t in range(1, 151)])
    later = np.append(np.cumprod(keep[::-1])[::-1], 1.0)
    prior_precision = (weight + later[0] / float(eta(1))) * np.linalg.inv(prior_cov)
    mean, cov = weighted_posterior(inputs, targets, centre, prior_precision, later[1:])
    learner = algorithm(lambda s, u: u @ s, Gaussian(NOISE), eta, jnp.asarray(centre), jnp.asarray(prior_cov), weight)
    rows = jnp.asarray(inputs), jnp.asarray(targets)
    end, _ = jax.lax.scan(lambda state, row: (learner.step(state, *row), None), learner.init(), rows)
    found, found_cov = (end.estimate, end.cov) if hasattr(end, "cov") else (end.params, learner.cov(end))
    np.testing.assert_allclose(found, mean, rtol=1e-10)
    np.testing.assert_allclose(found_cov, cov, rtol=1e-10, atol=1e-14)


def test_prop_4_starts_at_its_own_initial_values(rtol):
    arguments = (h, Bernoulli(), lambda t: 0.25 / t, jnp.asarray(THETA), 2 * jnp.eye(3), 4.0)
    np.testing.assert_allclose(PriorKeepingFilter(*arguments).init().cov, 0.25 / 2 * 2 * np.eye(3), rtol=rtol)
    regularized = RegularizedNaturalGradient(*arguments)
    np.testing.assert_allclose(regularized.init().fisher, np.eye(3) / 2, rtol=rtol)
    # eta_0 := eta_1, so the two initial values are each other's image although 0.25 / t has no value at 0.
    np.testing.assert_allclose(regularized.cov(regularized.init()), 0.25 / 2 * 2 * np.eye(3), rtol=rtol)
