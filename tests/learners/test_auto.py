"""The learner with nothing to tune: scales that do not matter, noise that is learned, intervals that hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.learners.scaled import deviation, observe, standardised, start

COUNT, WIDTH = 200, 3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(COUNT, WIDTH))
    return inputs, 5.0 + 2.0 * inputs[:, 0] - inputs[:, 1] + 0.5 * rng.normal(size=COUNT)


@pytest.fixture(scope="module")
def linear():
    params = nk.mlp_params(jax.random.key(0), (WIDTH, 1))
    return nk.auto(nk.static_model(nk.mlp_apply, params, nk.families.Gaussian(1.0)), budget=4), params


def test_running_moments_are_those_of_float64(rtol):
    values = 1000 + np.random.default_rng(0).normal(size=(500, 2))
    values[::7, 1] = np.nan
    running = start((2,), jnp.result_type(float))
    running = jax.lax.scan(lambda now, row: (observe(now, row), None), running, jnp.asarray(values))[0]
    told = np.asarray(jnp.asarray(values), float)
    np.testing.assert_allclose(running.mean.high, np.nanmean(told, axis=0), rtol=rtol)
    np.testing.assert_allclose(deviation(running), np.nanstd(told, axis=0), rtol=1e-4)
    assert float(jnp.max(jnp.abs(standardised(running, jnp.asarray([1e9, 1000.0]))))) <= 8.0


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_scale_of_the_inputs_does_not_matter(linear, data, factor):
    learner, params = linear
    losses = [
        -float(jnp.mean(nk.run(learner, learner.init(params), scale * data[0], data[1])[1].log_prob))
        for scale in (1.0, factor)
    ]
    assert abs(losses[1] - losses[0]) < 0.01 * abs(losses[0])


def test_the_scale_of_the_target_moves_with_the_predictions(linear, data, rtol):
    learner, params = linear
    _, plain = nk.run(learner, learner.init(params), *data)
    _, moved = nk.run(learner, learner.init(params), data[0], 100 * data[1] - 7)
    np.testing.assert_allclose(moved.prediction.mean[3:], 100 * plain.prediction.mean[3:] - 7, rtol=1e-3, atol=0.5)
    np.testing.assert_allclose(moved.log_prob[3:], plain.log_prob[3:] - np.log(100), atol=2e-2)


def test_intervals_hold_what_they_promise_and_the_noise_is_learned(linear, data):
    learner, params = linear
    state, info = nk.run(learner, learner.init(params), *data)
    low, high = learner.interval(info.prediction, 0.9)
    inside = (data[1] >= low) & (data[1] <= high)
    assert 0.85 <= float(jnp.mean(inside[20:])) <= 0.95
    width = float(jnp.sqrt(info.prediction.total_cov[-1, 0, 0]))
    assert 0.4 < width < 0.65  # the noise's deviation is 0.5
    uniform = learner.cdf(info.prediction, data[1])[20:]
    assert abs(float(jnp.mean(uniform)) - 0.5) < 0.06
    assert state.params[0]["weight"].shape == (WIDTH, 1)


def test_first_observations_are_predicted_before_there_is_a_scale(linear, data):
    learner, params = linear
    state = learner.init(params, inputs=data[0][0])
    prediction = learner.predict(state, data[0][0])
    assert prediction.mean.shape == (1,)
    state, info = learner.step(state, data[0][0], data[1][0])
    assert np.isfinite(float(info.log_prob))
    state, info = learner.step(state, data[0][1], np.nan)
    assert not bool(info.observed)
    small, pruned = learner.prune(state, 1)
    assert small.bank.size == 1
    assert bool(jnp.isfinite(small.step(pruned, data[0][2], data[1][2])[1].log_prob))


def test_a_formula_in_its_own_units_is_left_alone(data):
    model = nk.static_model(lambda w, u: w @ u + 5.0, jnp.zeros(WIDTH), nk.families.Gaussian(1.0))
    learner = nk.auto(model, budget=2, standardize=False)
    state, _ = nk.run(learner, learner.init(jnp.zeros(WIDTH)), *data)
    np.testing.assert_allclose(state.params, [2.0, -1.0, 0.0], atol=0.25)
    assert state.inputs is None


def test_a_recurrent_model_runs_behind_the_same_door():
    model = nk.recurrent_network(jax.random.key(0), nk.cells.tanh(4), 1, nk.families.Gaussian(1.0))
    learner = nk.auto(model, budget=2)
    wave = np.sin(np.arange(60) / 3.0)
    resets = np.arange(59) == 30
    _, info = nk.run(learner, learner.init(model.params), wave[:-1, None], wave[1:], resets=resets)
    assert bool(jnp.all(jnp.isfinite(info.log_prob)))


def test_large_networks_get_a_structured_curvature():
    params = nk.mlp_params(jax.random.key(0), (200, 100, 10))
    learner = nk.auto(nk.static_model(nk.mlp_apply, params, nk.families.Categorical(10, minimal=False)), memory=10**8)
    assert type(learner.bank.groups[0].learner(0).curvature).__name__ != "Dense"
