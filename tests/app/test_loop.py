"""The compiled loop against its parts: the engine on inputs scaled by hand, and itself cut into pieces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.app.session.metrics import interval
from natkal.tabular.laws import law_of
from natkal.tabular.loop import Feed, make_loop
from natkal.tabular.scaling import LIMIT
from natkal.tabular.schema import Target
from natkal.app.settings import Choice
from tests.app.support import table

LINEAR = Choice("single", "linear")
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
    loop, params = make_loop(choice, laws, width, tuple(place < scaled for place in range(width)))
    return loop, jax.tree.map(jnp.array, loop.init(params, 0)), params


def test_the_loop_is_the_engine_on_scaled_inputs():
    values = table(300)
    loop, state, params = start()
    state, pending = loop.run(state, Feed(values[:, :3], values[:, 3:]))
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
    whole, pending = loop.run(whole, Feed(values[:, :3], values[:, 3:]))
    rng = np.random.default_rng(0)
    state = jax.tree.map(jnp.array, loop.init(params, 0))
    pieces, first = [], 0
    while first < len(values):
        last = first + int(rng.integers(1, 60))
        state, part = loop.run(state, Feed(values[first:last, :3], values[first:last, 3:]))
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
    _, pending = loop.run(state, Feed(values[:, :3], values[:, 3:], late=late))
    summary = pending.wait().summary[:, 0]
    # Before the first label came nothing was known: even odds, whatever the features.
    np.testing.assert_allclose(summary[: delay + 1], 0.5, rtol=1e-12)
    assert np.all(summary[delay + 2 :] != 0.5)


def test_models_of_a_fleet_are_the_models_alone():
    from natkal.app.session.keyed_models import Fleet

    values = table(90)
    keys = [f"k{i % 3 if i < 60 else 3 + i % 20}" for i in range(90)]
    loop, _, params = start()
    fleet = Fleet(loop, params, 0, keyed=True)
    slots = fleet.slots(keys)
    fleet.run(Feed(values[:, :3], values[:, 3:], slots=slots)).wait()
    assert len(fleet.keys) == 23
    for key in ("k0", "k2", "k7"):
        mine = values[[name == key for name in keys]]
        _, alone, _ = start()
        alone, _ = loop.run(alone, Feed(mine[:, :3], mine[:, 3:]))
        np.testing.assert_allclose(
            fleet.one(fleet.keys[key]).learner.curvature.cov, alone.learner.curvature.cov, rtol=1e-12
        )


def test_late_labels_of_a_fleet_reach_their_own_model():
    """Each model gets what it would get alone: its rows when they come, their labels five rows of the stream later."""
    from natkal.app.session.keyed_models import Fleet

    values, delay = table(60), 5
    keys = [f"k{i * i % 3}" for i in range(60)]
    arrived = np.full((60, 4), np.nan)
    arrived[delay:] = values[:-delay]
    loop, _, params = start()
    fleet = Fleet(loop, params, 0, keyed=True)
    slots = fleet.slots(keys)
    late_slots = np.concatenate([np.zeros(delay, np.int32), slots[:-delay]])
    feed = Feed(values[:, :3], values[:, 3:], slots=slots, late=arrived, late_slots=late_slots)
    outcomes = fleet.run(feed).wait()
    for slot in range(len(fleet.keys)):
        mine = (slots == slot)[:, None]
        own = np.where((late_slots == slot)[:, None], arrived, np.nan)
        _, alone, _ = start()
        rows = np.where(mine, values, np.nan)
        alone, pending = loop.run(alone, Feed(rows[:, :3], rows[:, 3:], late=own))
        np.testing.assert_allclose(outcomes.summary[mine[:, 0]], pending.wait().summary[mine[:, 0]], rtol=1e-12)
        np.testing.assert_allclose(fleet.one(slot).learner.curvature.cov, alone.learner.curvature.cov, rtol=1e-12)


def test_a_model_with_memory_is_the_engine_with_resets():
    values = table(80)
    resets = np.arange(80) % 17 == 16
    loop, state, params = start(Choice("single", "gru:2"))
    state, pending = loop.run(state, Feed(values[:, :3], values[:, 3:], resets=resets))
    learner = loop.learner
    targets = values[:, 3].astype(int)
    expected, info = nk.run(learner, learner.init(params), scaled_by_hand(values[:, :3]), targets, resets=resets)
    np.testing.assert_allclose(pending.wait().log_prob[:, 0], info.log_prob, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(state.learner.carry.state, expected.carry.state, rtol=1e-6, atol=1e-9)
    # Predicting the next rows moves the memory along and learns nothing: the same as an engine that is told no labels.
    ahead = values[:6, :3]
    after, summary = loop.predict(state, Feed(ahead, np.full((6, 1), np.nan), resets=np.zeros(6, bool)))
    mine = state.learner
    for row in range(6):
        mine, told = learner.step(mine, loop.scaled_inputs(state, jnp.asarray(ahead[row])), np.nan)
        np.testing.assert_allclose(summary[row], told.prediction.mean, rtol=1e-10)
    np.testing.assert_allclose(after.learner.curvature.cov, state.learner.curvature.cov, rtol=1e-12)
    assert not np.allclose(after.learner.carry.state, state.learner.carry.state)


@pytest.mark.parametrize("log", [False, True])
def test_real_targets_come_back_in_their_own_units(log):
    """log p in the user's units: the density of y is the scaled one's over the scale, and over y for a logarithm."""
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(200, 1))
    linear = 50 + 20 * inputs[:, 0] + rng.normal(size=200)
    y = np.exp(linear / 20) if log else linear
    laws = (law_of(Target("y", "positive" if log else "regression", (), "")),)
    loop, state, _ = start(laws=laws, width=1, scaled=1)
    _, pending = loop.run(state, Feed(inputs, y[:, None]))
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


def test_a_bank_in_the_loop_is_the_bank_on_scaled_inputs():
    values = table(150)
    loop, state, params = start(Choice("auto", "linear"))
    _, pending = loop.run(state, Feed(values[:, :3], values[:, 3:]))
    outcomes = pending.wait()
    bank = loop.learner
    _, info = nk.run(bank, bank.init(params), scaled_by_hand(values[:, :3]), values[:, 3].astype(int))
    np.testing.assert_allclose(outcomes.log_prob[:, 0], info.log_prob, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(outcomes.summary, info.prediction.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(outcomes.weights[:, :-1], info.prediction.weights.sum(axis=2), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(outcomes.weights[1:, -1], info.memory[:-1], rtol=0.2)
    # With labels that come later the same law is asked for log p, after fewer lessons.
    late = np.full((150, 4), np.nan)
    late[1:] = values[:-1]
    _, state, _ = start(Choice("auto", "linear"))
    _, pending = loop.run(state, Feed(values[:, :3], values[:, 3:], late=late))
    probability = pending.wait().summary[:, 0]
    expected = np.log(np.where(values[:, 3] == 1, probability, 1 - probability))
    np.testing.assert_allclose(pending.wait().log_prob[:, 0], expected, rtol=1e-9)


@pytest.mark.parametrize("task", ["regression", "count"])
def test_intervals_of_a_bank_hold_nine_rows_of_ten(task):
    """Noise that is not known beforehand: heavy tails in a regression, counts that vary twice as much as Poisson's."""
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(1500, 2))
    if task == "regression":
        y = 50 + 10 * inputs[:, 0] + 3 * rng.standard_t(5, size=1500)
    else:
        mean = np.exp(2 + 0.3 * inputs[:, 0])
        y = rng.poisson(rng.gamma(mean / 5, 5)).astype(float)
    target = Target("y", task, (), "")
    loop, state, _ = start(Choice("auto", "linear"), (law_of(target),), 2, 2)
    _, pending = loop.run(state, Feed(inputs, y[:, None]))
    low, high = interval(target, pending.wait().summary[300:])
    covered = np.mean((low <= y[300:]) & (y[300:] <= high))
    # Whole numbers at either end hold more than the interval between them would.
    assert 0.87 < covered < (0.97 if task == "count" else 0.95)


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
    _, pending = loop.run(state, Feed(inputs, targets.astype(float)))
    outcomes = pending.wait()
    assert outcomes.summary.shape == (150, 5)
    assert np.isnan(outcomes.log_prob[5, 1])
    assert np.isfinite(outcomes.log_prob[5, [0, 2]]).all()
    early, late = np.nanmean(outcomes.log_prob[2:50], axis=0), outcomes.log_prob[100:].mean(axis=0)
    assert (late > early)[:2].all()
