"""Sequences side by side: one step is the sum of their Fisher matrices, and each keeps its own memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

SEQUENCES = 3
LINEAR = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Gaussian(0.5))


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def test_a_linear_model_learns_from_all_sequences_as_from_their_rows_in_turn():
    """Sums of Fisher matrices and gradients commute with their order where nothing is nonlinear."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(10, SEQUENCES, 2)), rng.normal(size=(10, SEQUENCES))
    together = nk.online(nk.models.panel(LINEAR, SEQUENCES), prior_cov=2.0, step_control=nk.step_control(cap=None))
    alone = nk.online(LINEAR, prior_cov=2.0, step_control=nk.step_control(cap=None))
    many, _ = nk.run(together, together.init(), inputs, targets)
    one, _ = nk.run(alone, alone.init(), inputs.reshape(-1, 2), targets.ravel())
    np.testing.assert_allclose(many.params, one.params, rtol=1e-9)
    np.testing.assert_allclose(together.covariance(many), alone.covariance(one), rtol=1e-9)


def test_each_sequence_has_a_memory_and_a_missing_target_says_nothing():
    """One sequence with targets among silent ones is that sequence alone, its state correction too."""
    model = nk.recurrent_network(jax.random.key(0), nk.cells.gru(2), 1, nk.families.Gaussian(0.5))
    rng = np.random.default_rng(1)
    inputs, targets = rng.normal(size=(8, SEQUENCES, 1)), np.full((8, SEQUENCES), np.nan)
    targets[:, 1] = rng.normal(size=8)
    together, alone = nk.online(nk.models.panel(model, SEQUENCES), prior_cov=0.1), nk.online(model, prior_cov=0.1)
    many, info = nk.run(together, together.init(), inputs, targets)
    one, single = nk.run(alone, alone.init(), inputs[:, 1], targets[:, 1])
    np.testing.assert_allclose(info.log_prob, single.log_prob, rtol=1e-8)
    for left, right in zip(jax.tree.leaves(many.params), jax.tree.leaves(one.params), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(many.carry.state[1], one.carry.state, rtol=1e-8)
    ahead = together.forecast(many, inputs[:4], 4)
    np.testing.assert_allclose(ahead.mean[:, 1], alone.forecast(one, inputs[:4, 1], 4).mean[:, 0], rtol=1e-8)
    restarted = together.model.restart_some(many.params, many.carry, [True, False, False])
    np.testing.assert_array_equal(restarted.state[0], np.zeros(2))
    np.testing.assert_array_equal(restarted.state[1], many.carry.state[1])


def test_complaints():
    with pytest.raises(ValueError, match="sequences: must be at least 1, got 0"):
        nk.models.panel(LINEAR, 0)
