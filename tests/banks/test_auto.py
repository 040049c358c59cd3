"""The learner with nothing to tune: scales that do not matter, noise that is learned, intervals that hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

COUNT, WIDTH = 200, 3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(COUNT, WIDTH))
    return inputs, 5.0 + 2.0 * inputs[:, 0] - inputs[:, 1] + 0.5 * rng.normal(size=COUNT)


@pytest.fixture(scope="module")
def linear():
    params = nk.mlp_params(jax.random.key(0), (WIDTH, 1))
    return nk.auto(nk.static_model(nk.mlp_apply, params, nk.families.Gaussian(1.0)), members=4)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_scale_of_the_inputs_does_not_matter(linear, data, factor):
    losses = [
        -float(jnp.mean(nk.run(linear, linear.init(), scale * data[0], data[1])[1].log_prob)) for scale in (1.0, factor)
    ]
    assert abs(losses[1] - losses[0]) < 0.01 * abs(losses[0])


def test_the_scale_of_the_target_moves_with_the_predictions(linear, data):
    _, plain = nk.run(linear, linear.init(), *data)
    _, moved = nk.run(linear, linear.init(), data[0], 100 * data[1] - 7)
    np.testing.assert_allclose(moved.prediction.mean[3:], 100 * plain.prediction.mean[3:] - 7, rtol=1e-3, atol=0.5)
    np.testing.assert_allclose(moved.log_prob[3:], plain.log_prob[3:] - np.log(100), atol=2e-2)


def test_what_was_learned_outlives_a_jump_of_the_scale(linear, data):
    inputs, targets = data
    half = COUNT // 2
    targets = targets * np.where(np.arange(COUNT) < half, 1.0, 1e6)
    _, info = nk.run(linear, linear.init(), inputs, targets)
    error = np.abs(np.asarray(info.prediction.mean[:, 0]) - targets)[half + 60 :]
    assert np.mean(error) < 0.7e6  # the noise's mean is 0.4e6; a constant has 1.8e6
    np.testing.assert_allclose(info.prediction.log_prob(targets), info.log_prob, rtol=1e-3, atol=1e-3)


def test_intervals_hold_what_they_promise_and_the_noise_is_learned(linear, data):
    _, info = nk.run(linear, linear.init(), *data)
    low, high = info.prediction.interval(0.9)
    inside = (data[1] >= low) & (data[1] <= high)
    assert 0.85 <= float(jnp.mean(inside[20:])) <= 0.95
    width = float(jnp.sqrt(info.prediction.cov[-1, 0, 0]))
    assert 0.4 < width < 0.65  # the noise's deviation is 0.5
    uniform = info.prediction.cdf(data[1])[20:]
    assert abs(float(jnp.mean(uniform)) - 0.5) < 0.06
    np.testing.assert_allclose(info.prediction.log_prob(data[1]), info.log_prob, rtol=1e-3, atol=1e-3)


def test_the_first_rows_are_learned_together_and_a_missing_target_is_only_predicted(linear, data):
    state = linear.init()
    assert linear.predict(state, data[0][0]).mean.shape == (1,)
    state, info = linear.step(state, data[0][0], data[1][0])
    assert np.isfinite(float(info.log_prob))
    state, info = linear.step(state, data[0][1], np.nan)
    assert not bool(info.observed)
    assert float(info.log_prob) == 0.0
    assert int(state.rows) == 1
    learned, _ = nk.run(linear, linear.init(), data[0][:16], data[1][:16])
    assert int(linear.best(learned)[1].steps) == 16


@pytest.mark.slow
def test_a_pruned_learner_goes_on(linear, data):
    state, _ = linear.step(linear.init(), data[0][0], data[1][0])
    small, pruned = linear.prune(state, 1)
    assert small.bank.size == 1
    assert bool(jnp.isfinite(small.step(pruned, data[0][2], data[1][2])[1].log_prob))


def test_a_formula_in_its_own_units_is_left_alone(data):
    model = nk.static_model(lambda w, u: w @ u + 5.0, jnp.zeros(WIDTH), nk.families.Gaussian(1.0))
    learner = nk.auto(model, members=2, standardize=False)
    state, _ = nk.run(learner, learner.init(), *data)
    np.testing.assert_allclose(learner.best(state)[1].params, [2.0, -1.0, 0.0], atol=0.25)


def test_large_networks_get_a_structured_curvature():
    params = nk.mlp_params(jax.random.key(0), (200, 100, 10))
    learner = nk.auto(nk.static_model(nk.mlp_apply, params, nk.families.Categorical(10, minimal=False)), memory=10**8)
    assert type(learner.bank.groups[0].first.curvature).__name__ != "Dense"


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_input_is_a_number_or_a_vector_of_one(shape) -> None:
    """A cell takes both, so the shape found from its parameters need not be that of the rows."""
    learner = nk.auto(nk.recurrent_network(jax.random.key(0), nk.cells.gru(2), 1, nk.families.Gaussian(1.0)), members=2)
    inputs = jnp.reshape(jnp.sin(jnp.arange(24.0)), (24, *shape))
    state, info = nk.run(learner, learner.init(), inputs, jnp.cos(jnp.arange(24.0)))
    assert jnp.isfinite(info.log_prob).all()
    assert jnp.isfinite(learner.predict(state, inputs[0]).mean).all()
