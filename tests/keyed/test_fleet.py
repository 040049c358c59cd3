"""A fleet is its learners, one by one."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.engine import KalmanLearner
from natkal.keyed.fleet import Fleet

SIZE = 3


@pytest.fixture(scope="module")
def learner() -> KalmanLearner:
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE), nk.families.Gaussian(1.0))
    return nk.online(model, prior_cov=1.0, rates=nk.fading(0.01))


@pytest.fixture(scope="module")
def fleet(learner: KalmanLearner) -> Fleet:
    return nk.fleet(learner, 4)


def rows(count: int, keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, keys, count), rng.normal(size=(count, SIZE)), rng.normal(size=count)


def test_each_learner_learns_its_own_rows_in_their_order(
    monkeypatch: pytest.MonkeyPatch, learner: KalmanLearner, fleet: Fleet, rtol: float
) -> None:
    monkeypatch.setattr(
        import_module("natkal.keyed.fleet"), "FEW", 5
    )  # so that some rows go together and the rest in turn
    keys, inputs, targets = rows(64, 9)
    keys[40:] = 7
    state, info = fleet.update(fleet.init(jnp.zeros(SIZE)), keys, inputs, targets)
    assert len(jax.tree.leaves(state.members)[0]) == 16
    step = jax.jit(learner.step)
    for key in range(9):
        alone, own = learner.init(jnp.zeros(SIZE)), np.flatnonzero(keys == key)
        for row in own:
            alone, told = step(alone, inputs[row], targets[row])
            np.testing.assert_allclose(info.log_prob[row], told.log_prob, rtol=rtol, atol=rtol)
        together = fleet.member(state, key)
        np.testing.assert_allclose(together.params, alone.params, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(learner.covariance(together), learner.covariance(alone), rtol=rtol, atol=rtol)
    prediction = fleet.predict(state, [7, 999], inputs[:2])
    np.testing.assert_allclose(prediction.mean[0, 0], fleet.member(state, 7).params @ inputs[0], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(prediction.mean[1], np.zeros(1), atol=rtol)


def test_growing_and_ragged_arrivals_compile_a_logarithm_of_times(learner: KalmanLearner) -> None:
    traces = []

    class Counted(KalmanLearner):
        def step(self, state, inputs, target):
            traces.append(0)
            return super().step(state, inputs, target)

    counted = Counted(**vars(learner))
    fleet = nk.fleet(counted, 1)
    state = fleet.init(jnp.zeros(SIZE))
    for last in range(1, 9):
        state, _ = fleet.update(state, [last - 1], np.ones((1, SIZE)), np.ones(1))
    assert len(traces) <= 4  # sizes 1, 2, 4 and 8


def test_a_shard_moves_from_one_fleet_to_another(fleet: Fleet) -> None:
    _, inputs, targets = rows(4, 4)
    state, _ = fleet.update(fleet.init(jnp.zeros(SIZE)), np.arange(4), inputs, targets)
    expected = np.asarray(state.members.params)
    other = fleet.import_shard(fleet.init(jnp.zeros(SIZE)), [1, 9], fleet.export_shard(state, [3, 2]))
    np.testing.assert_array_equal(other.members.params[jnp.array([1, 9])], expected[[3, 2]])
    np.testing.assert_array_equal(other.members.params[0], np.zeros(SIZE))


@pytest.mark.parametrize(
    ("keys", "message"), [([0.5, 1.0], "2 integers"), ([0], "2 integers"), ([-1, 0], "numbered from 0")]
)
def test_bad_keys_are_named(fleet: Fleet, keys: list, message: str) -> None:
    with pytest.raises(ValueError, match=f"keys: .*{message}"):
        fleet.update(fleet.init(jnp.zeros(SIZE)), keys, np.ones((2, SIZE)), np.ones(2))
