"""The compiled loop against its parts: the engine on inputs scaled by hand, and itself cut into pieces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.stream.laws import law_of
from natkal.stream.learners import Choice
from natkal.stream.loop import make_loop
from natkal.stream.scaling import LIMIT
from natkal.stream.schema import Target
from tests.stream.support import table

LINEAR = Choice(model="linear")
BINARY = (law_of(Target("y", "binary", ("0", "1"), "")),)


def scaled_by_hand(inputs: np.ndarray) -> np.ndarray:
    """Every row by the mean and deviation of the rows before it, in NumPy, one row at a time."""
    scaled = np.zeros_like(inputs)
    for row in range(2, len(inputs)):
        before = inputs[:row]
        spread = before.std(axis=0)
        scaled[row] = np.where(spread > 0, (inputs[row] - before.mean(axis=0)) / np.where(spread > 0, spread, 1), 0)
    return np.clip(scaled, -LIMIT, LIMIT)


def start(choice=LINEAR, laws=BINARY, width=3, scaled=3):
    loop, params = make_loop(choice, laws, width, scaled)
    return loop, jax.tree.map(jnp.array, loop.init(params, 0)), params


def test_the_loop_is_the_engine_on_scaled_inputs():
    values = table(300)
    loop, state, params = start()
    state, pending = loop.run(state, values[:, :3], values[:, 3:], None, None)
    outcomes = pending.wait()
    learner = loop.learner
    expected, info = nk.run(learner, learner.init(params), scaled_by_hand(values[:, :3]), values[:, 3].astype(int))
    np.testing.assert_allclose(outcomes.log_prob[:, 0], info.log_prob, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(outcomes.summary, info.prediction.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(learner.covariance(state.learner), learner.covariance(expected), rtol=1e-7)


def test_cut_anywhere_the_bits_are_the_same():
    values = table(400)
    values[::7, 0] = np.nan
    loop, whole, params = start()
    whole, pending = loop.run(whole, values[:, :3], values[:, 3:], None, None)
    rng = np.random.default_rng(0)
    state = jax.tree.map(jnp.array, loop.init(params, 0))
    pieces, first = [], 0
    while first < len(values):
        last = first + int(rng.integers(1, 60))
        state, part = loop.run(state, values[first:last, :3], values[first:last, 3:], None, None)
        pieces.append(part.wait().log_prob)
        first = last
    assert np.concatenate(pieces).tobytes() == pending.wait().log_prob.tobytes()
    for left, right in zip(jax.tree.leaves(state), jax.tree.leaves(whole), strict=True):
        if not jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
            assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


def test_a_delayed_label_is_learned_when_it_comes():
    values = table(60)
    loop, state, _ = start()
    delay = 5
    late = np.full((60, 4), np.nan)
    late[delay:] = values[:-delay]
    _, pending = loop.run(state, values[:, :3], values[:, 3:], late, None)
    summary = pending.wait().summary[:, 0]
    # Before the first label came nothing was known: even odds, whatever the features.
    np.testing.assert_allclose(summary[: delay + 1], 0.5, rtol=1e-12)
    assert np.all(summary[delay + 2 :] != 0.5)


def test_models_of_a_fleet_are_the_models_alone():
    from natkal.stream.fleet import Fleet

    values = table(90)
    keys = [f"k{i % 3 if i < 60 else 3 + i % 20}" for i in range(90)]
    loop, _, params = start()
    fleet = Fleet(loop, params, 0, keyed=True)
    slots = fleet.slots(keys)
    fleet.run(values[:, :3], values[:, 3:], None, slots).wait()
    assert len(fleet.keys) == 23
    for key in ("k0", "k2", "k7"):
        mine = values[[name == key for name in keys]]
        _, alone, _ = start()
        alone, _ = loop.run(alone, mine[:, :3], mine[:, 3:], None, None)
        np.testing.assert_allclose(
            fleet.one(fleet.keys[key]).learner.curvature.cov, alone.learner.curvature.cov, rtol=1e-12
        )


@pytest.mark.parametrize("log", [False, True])
def test_real_targets_come_back_in_their_own_units(log):
    """log p in the user's units: the density of y is the scaled one's over the scale, and over y for a logarithm."""
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(200, 1))
    linear = 50 + 20 * inputs[:, 0] + rng.normal(size=200)
    y = np.exp(linear / 20) if log else linear
    laws = (law_of(Target("y", "positive" if log else "regression", (), "")),)
    loop, state, _ = start(laws=laws, width=1, scaled=1)
    _, pending = loop.run(state, inputs, y[:, None], None, None)
    outcomes = pending.wait()
    centre, spread = outcomes.summary[100:].T
    measured = np.log(y[100:]) if log else y[100:]
    assert np.mean(np.abs(measured - centre)) < 0.2 * np.std(measured)
    density = -0.5 * ((measured - centre) / spread) ** 2 - np.log(spread) - 0.5 * np.log(2 * np.pi)
    density -= measured if log else 0
    # The spread also holds what is not known of the parameters, so the two agree only closely.
    np.testing.assert_allclose(outcomes.log_prob[100:, 0].mean(), density.mean(), atol=0.03)
    assert np.isnan(outcomes.log_prob[:2]).all()
    assert np.isfinite(outcomes.log_prob[2:]).all()


def test_several_targets_at_once():
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(150, 2))
    targets = np.column_stack([inputs @ [2.0, -1.0] + 7, inputs[:, 0] > 0, rng.poisson(np.exp(inputs[:, 1]))])
    laws = tuple(
        law_of(Target(name, task, classes, ""))
        for name, task, classes in (("r", "regression", ()), ("b", "binary", ("0", "1")), ("c", "count", ()))
    )
    targets[5, 1] = np.nan
    loop, state, _ = start(laws=laws, width=2, scaled=2)
    _, pending = loop.run(state, inputs, targets.astype(float), None, None)
    outcomes = pending.wait()
    assert outcomes.summary.shape == (150, 5)
    assert np.isnan(outcomes.log_prob[5, 1])
    assert np.isfinite(outcomes.log_prob[5, [0, 2]]).all()
    early, late = np.nanmean(outcomes.log_prob[2:50], axis=0), outcomes.log_prob[100:].mean(axis=0)
    assert (late > early)[:2].all()
