"""The dictionary: there and back, the paper's examples, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.models import mlp_params
from natkal.paper import dictionary
from natkal.paper.schedules import as_schedule

SCHEDULES = {
    "1/(t+1)": dictionary.inverse_time(1),
    "1/(t+20)": dictionary.inverse_time(20),
    "constant": dictionary.constant(0.05),
    "1/sqrt": dictionary.inverse_sqrt(25, 0.3),
    "own": lambda t: 0.2 / (1 + 0.1 * t) ** 0.7,
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_rates_to_fading_and_back(schedule, rtol):
    etas = dictionary.tabulate(schedule, 200)
    lambdas = dictionary.fading_from_learning_rate(etas)
    assert etas.shape == (201,)
    assert lambdas.shape == (200,)
    np.testing.assert_allclose(dictionary.learning_rate_from_fading(lambdas, etas[0]), etas, rtol=10 * rtol)


@pytest.mark.parametrize("seed", range(3))
def test_fading_to_rates_and_back(seed, rtol):
    lambdas = np.random.default_rng(seed).uniform(0, 0.5, 100)
    etas = dictionary.learning_rate_from_fading(lambdas, 0.3)
    np.testing.assert_allclose(dictionary.fading_from_learning_rate(etas), lambdas, atol=10 * rtol)


def test_the_papers_examples(rtol):
    """1/(t + cst) is no decay; a constant rate is a constant decay; lambda = 0 gives 1/(t + S_0)."""
    times = np.arange(51)
    no_decay = dictionary.fading_from_learning_rate(1 / (times + 7.0))
    np.testing.assert_allclose(no_decay, np.zeros(50), atol=10 * rtol)
    constant = dictionary.fading_from_learning_rate(np.full(51, 0.1))
    np.testing.assert_allclose(constant, np.full(50, 0.1), atol=10 * rtol)
    np.testing.assert_allclose(
        dictionary.learning_rate_from_fading(np.zeros(50), 1 / 7), 1 / (times + 7.0), rtol=10 * rtol
    )


def test_rates_that_fall_faster_than_one_over_t_have_negative_fading():
    lambdas = dictionary.fading_from_learning_rate(1 / (np.arange(5) + 1.0) ** 2)
    assert (np.asarray(lambdas) < 0).all()


def test_the_dictionary_is_traceable(rtol):
    etas = dictionary.tabulate(dictionary.constant(0.1), 5)
    there_and_back = jax.jit(
        lambda etas: dictionary.learning_rate_from_fading(dictionary.fading_from_learning_rate(etas), etas[0])
    )
    np.testing.assert_allclose(there_and_back(etas), etas, rtol=rtol)
    cov = jax.jit(lambda eta: dictionary.to_kalman(jnp.zeros(2), jnp.eye(2), eta, eta)[1])(0.5)
    np.testing.assert_allclose(cov, 0.5 * np.eye(2), rtol=rtol)


def test_states_there_and_back(rtol):
    cov, params = jnp.array([[2.0, 0.5], [0.5, 1.0]]), jnp.array([1.0, -1.0])
    same, fisher = dictionary.to_natural_gradient(params, cov, 0.25)
    np.testing.assert_allclose(fisher, 0.25 * np.linalg.inv(cov), rtol=10 * rtol)
    back = dictionary.to_kalman(same, fisher, 0.25, fisher_decay=0.25)
    np.testing.assert_allclose(back[0], params)
    np.testing.assert_allclose(back[1], cov, rtol=10 * rtol)


def test_priors_there_and_back(rtol):
    cov = jnp.array([[2.0, 0.5], [0.5, 1.0]])
    fisher = dictionary.prior_fisher_from_cov(cov, 0.5)
    np.testing.assert_allclose(dictionary.prior_cov_from_fisher(fisher, 0.5), cov, rtol=10 * rtol)
    np.testing.assert_allclose(dictionary.regularized_prior_cov(cov, 0.5, 2.0), cov / 4, rtol=rtol)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dictionary.fading_from_learning_rate(np.array([0.5, 1.5])), r"etas: .*\(0, 1\], got 1\.5"),
        (lambda: dictionary.fading_from_learning_rate([0.5, 0.0]), r"etas: .*got 0"),
        (lambda: dictionary.fading_from_learning_rate([0.5, float("nan")]), r"etas: .*got nan"),
        (lambda: dictionary.fading_from_learning_rate(np.full((2, 2), 0.5)), r"etas: .*shape \(2, 2\)"),
        (lambda: dictionary.learning_rate_from_fading([0.1, 1.0], 0.5), r"lambdas: .*\[0, 1\), got 1"),
        (lambda: dictionary.learning_rate_from_fading([-0.1], 0.5), r"lambdas: .*got -0\.1"),
        (lambda: dictionary.learning_rate_from_fading(np.zeros((1, 2)), 0.5), r"lambdas: .*shape \(1, 2\)"),
        (lambda: dictionary.learning_rate_from_fading([0.1], 2), r"eta_0: .*got 2"),
        (lambda: dictionary.to_natural_gradient(jnp.zeros(1), jnp.eye(1), -1.0), r"learning_rate: .*got -1"),
        (
            lambda: dictionary.to_kalman(jnp.zeros(1), jnp.eye(1), 0.1, fisher_decay=0.2),
            r"fisher_decay: 0\.2 differs from learning_rate 0\.1; .* no exact Kalman image",
        ),
        (lambda: dictionary.inverse_time(0.5), r"cst: .*got 0\.5"),
        (lambda: dictionary.constant(0.0), r"eta: .*got 0"),
        (lambda: dictionary.inverse_sqrt(0.0), r"cst: .*got 0"),
        (lambda: dictionary.inverse_sqrt(1.0, 2.0), r"scale / sqrt\(cst\): .*got 2"),
        (lambda: as_schedule("learning_rate", 3.0), r"learning_rate: .*got 3"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_schedules(rtol):
    assert float(dictionary.inverse_time()(0)) == 1.0
    np.testing.assert_allclose(dictionary.tabulate(dictionary.inverse_sqrt(4, 0.5), 5)[5], 0.5 / 3, rtol=rtol)
    np.testing.assert_allclose(dictionary.tabulate(as_schedule("eta", 0.5), 2), [0.5, 0.5, 0.5])


def test_fan_in_prior():
    prior = dictionary.fan_in_prior(mlp_params(jax.random.key(0), (5, 4, 3)))
    assert [layer["weight"].shape for layer in prior] == [(5, 4), (4, 3)]
    for layer, fan_in in zip(prior, (5, 4), strict=True):
        np.testing.assert_allclose(layer["weight"], 1 / fan_in, rtol=1e-6)
        np.testing.assert_allclose(layer["bias"], np.full(layer["bias"].shape, 1 / fan_in), rtol=1e-6)


def test_fan_in_of_other_shapes():
    """A kernel counts all axes but the last; a vector alone, of another length, or a number, counts 1."""
    params = {
        "conv": {"kernel": jnp.zeros((3, 3, 2, 7)), "scale": jnp.zeros(5)},
        "gain": jnp.zeros(()),
        "shift": jnp.zeros(7),
    }
    prior = dictionary.fan_in_prior(params)
    np.testing.assert_allclose(prior["conv"]["kernel"], np.full((3, 3, 2, 7), 1 / 18), rtol=1e-6)
    np.testing.assert_allclose(prior["conv"]["scale"], np.ones(5))
    np.testing.assert_allclose(prior["gain"], 1.0)
    np.testing.assert_allclose(prior["shift"], np.ones(7))
    np.testing.assert_allclose(dictionary.fan_in_prior(jnp.zeros(4)), np.ones(4))
