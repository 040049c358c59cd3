"""Forecasts of a table: the past inside a program, Markov chains and autoregressions as oracles, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.forecasting.paths import QUANTILES, Future, PastShape, crps, forecast, table_paths
from natkal.settings.options import Options, make_options
from natkal.tables.learner.past import MEAN_RATE, Past
from natkal.tables.learner.period import find_period
from natkal.tables.table import TableLearner, TargetShape

SINGLE = make_options(learner="single", model="linear", fading=0.0, prior_scale=100.0)


@pytest.mark.parametrize(("classes", "lags"), [(0, None), (0, (1, 3)), (2, None), (5, None)])
def test_the_past_inside_a_program_is_the_past(classes, lags):
    rng = np.random.default_rng(0)
    wave = 5 + 3 * np.sin(2 * np.pi * np.arange(150) / 12)
    values = wave + rng.normal(size=150) if classes == 0 else rng.integers(0, classes, size=150).astype(float)
    past = Past(classes, lags)
    past.rows(values, [])
    assert past.season == (12 if classes == 0 and lags is None else 0)
    shape, future = PastShape.of(past), jax.tree.map(jnp.asarray, Future.of(past, "", np.zeros((1, 30, 0)), classes))
    drawn, means = jnp.zeros(30), future.means
    inputs = jax.jit(lambda means, drawn, step: shape.inputs(future, means, drawn, step))
    after = jax.jit(lambda means, step, value: means.after(future.place(step), value))
    for step in range(30):
        np.testing.assert_allclose(inputs(means, drawn, step), past.inputs(), rtol=1e-12)
        value = float(rng.integers(0, max(classes, 2)))
        past.learn(value)
        drawn, means = drawn.at[step].set(value), after(means, step, value)


def test_a_period_that_is_given_up_leaves_no_seasonal_means():
    rng = np.random.default_rng(0)
    past = Past(0, None)
    past.rows(np.sin(2 * np.pi * np.arange(132) / 25), [])
    assert past.season == 25
    past.rows(100 * np.cumsum(rng.normal(size=200)), [])
    assert past.season == 0
    future = Future.of(past, "", np.zeros((1, 4, 0)), 0)
    assert not future.means.weights.any()
    assert np.isnan(past.inputs()[-2:]).all()


def test_a_naive_forecast_repeats_the_season_on_the_last_value():
    past = Past(0, None)
    values = 0.5 * np.arange(96) + np.tile([3.0, -1.0, 4.0, -6.0], 24)
    past.rows(values, [])
    assert past.season == 4
    assert np.dot(past.naive, past.inputs()) == pytest.approx(0.5 * 96 + 3.0)


def test_the_period_of_a_season_on_a_wandering_level_and_of_noisy_cycles():
    rng = np.random.default_rng(1)
    found = [
        find_period((np.arange(n) % 7 == 0) * 3.0 + np.cumsum(0.3 * rng.normal(size=n)) + 0.5 * rng.normal(size=n))
        for n in (144, 288, 512)
        for _ in range(5)
    ]
    assert np.mean(np.array(found) == 7) > 0.8
    smooth = [find_period(np.sin(2 * np.pi * np.arange(400) / 48) + 0.5 * rng.normal(size=400)) for _ in range(5)]
    assert all(abs(period - 48) <= 2 for period in smooth)
    silent = [find_period(make(rng.normal(size=400))) for make in (lambda e: e, np.cumsum) for _ in range(10)]
    assert np.mean(np.array(silent) == 0) >= 0.9


def test_a_seasonal_mean_is_the_faded_mean_of_the_same_place_of_earlier_periods():
    values = np.sin(2 * np.pi * np.arange(100) / 10) + 0.01 * np.arange(100)
    past = Past(0, None)
    past.rows(values, [])
    assert past.season == 10
    same = values[-10::-10][:-1]  # the very first value has none before it
    expected = np.average(same, weights=(1 - MEAN_RATE) ** np.arange(len(same)))
    assert past.inputs()[-2] == pytest.approx(expected)
    again = Past(0, None)
    again.restore(past.state())
    np.testing.assert_array_equal(again.inputs(), past.inputs())


@pytest.fixture(scope="module")
def autoregression():
    """y' = 10 + 0.8 (y - 10) + noise, and a learner that has seen 1,500 of it."""
    rng = np.random.default_rng(0)
    y = np.zeros(2200)
    for t in range(1, len(y)):
        y[t] = 0.8 * y[t - 1] + rng.normal()
    with jax.enable_x64(True):
        learner = TableLearner(
            make_options(learner="single", model="linear", fading=0.0, prior_scale=100.0, past="1"),
            [],
            [TargetShape("regression")],
            limits=False,
        )
        learner.learn(learner.rows(np.zeros((1500, 0)), 10 + y[:1500, None])).wait()
    return learner, 10 + y


def test_a_forecast_is_that_of_the_autoregression(autoregression):
    learner, y = autoregression
    told = forecast(learner, 48)
    steps = np.arange(1, 49)
    expected = 10 + 0.8**steps * (y[1499] - 10)
    half = 1.645 * np.sqrt((1 - 0.64**steps) / 0.36)
    np.testing.assert_allclose([one["predicted"] for one in told], expected, atol=0.35)
    width = np.array([one["high"] - one["low"] for one in told])
    np.testing.assert_allclose(width, 2 * half, rtol=0.12)
    assert list(told[0]["quantiles"]) == list(QUANTILES)
    assert told == forecast(learner, 48)  # the same seed, the same paths


def test_intervals_hold_at_horizons_1_12_and_48(autoregression):
    learner, y = autoregression
    inside = []
    for origin in range(1500, len(y) - 48, 16):
        quantiles = np.quantile(table_paths(learner, 48, rounds=8), [0.05, 0.95], axis=0)
        later = y[origin : origin + 48]
        inside.append((quantiles[0] <= later) & (later <= quantiles[1]))
        learner.learn(learner.rows(np.zeros((16, 0)), y[origin : origin + 16, None])).wait()
    share = np.mean(inside, axis=0)
    assert (share[[0, 11, 47]] > 0.78).all()
    assert 0.86 < share.mean() < 0.94


def test_classes_follow_their_markov_chain():
    """P(y_h | y_0) = T^h: the learner has seen 3,000 steps of a chain with two states."""
    rng = np.random.default_rng(1)
    stay = np.array([0.9, 0.6])
    y = np.zeros(3000)
    for t in range(1, len(y)):
        y[t] = y[t - 1] if rng.random() < stay[int(y[t - 1])] else 1 - y[t - 1]
    options = make_options(learner="single", model="linear", past="1", prior_scale=100.0, fading=0.0)
    learner = TableLearner(options, [], [TargetShape("binary", 2, 2)], limits=False)
    learner.learn(learner.rows(np.zeros((3000, 0)), y[:, None])).wait()
    chain = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    told = forecast(learner, 6)
    expected = [np.linalg.matrix_power(chain, h)[int(y[-1])] for h in range(1, 7)]
    np.testing.assert_allclose([one["probabilities"] for one in told], expected, atol=0.07)


def test_known_columns_are_used_and_unknown_ones_widen():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(600, 1))
    y = 3 * x + 0.1 * rng.normal(size=(600, 1))
    learner = TableLearner(SINGLE, [True], [TargetShape("regression")], limits=False)
    learner.learn(learner.rows(x, y)).wait()
    future = np.array([[1.0], [-1.0], [2.0]])
    told = forecast(learner, 3, future)
    np.testing.assert_allclose([one["predicted"] for one in told], 3 * future[:, 0], atol=0.1)
    versions = rng.normal(size=(200, 3, 1))
    wide = forecast(learner, 3, versions)
    assert min(one["high"] - one["low"] for one in wide) > 8 * max(one["high"] - one["low"] for one in told)


def test_what_cannot_be_forecast_is_refused_with_the_option_to_change():
    past_none = make_options(learner="single", model="linear", past="none")
    learner = TableLearner(past_none, [True], [TargetShape("regression")], limits=False)
    with pytest.raises(StreamError, match=r"no past targets; give the columns .*--future FILE.*--past auto"):
        forecast(learner, 3)
    with pytest.raises(StreamError, match="needs 3 rows of 1 numbers"):
        forecast(learner, 3, np.ones((2, 1)))
    with pytest.raises(StreamError, match="horizon: must be at least 1 row ahead, got 0"):
        forecast(learner, 0, np.ones((2, 1)))
    keyed = TableLearner(SINGLE, [True], [TargetShape("regression")], keyed=True, limits=False)
    with pytest.raises(StreamError, match="key: 'b' was never seen"):
        forecast(keyed, 3, key="b")


def test_the_score_of_quantiles_is_that_of_the_law():
    """CRPS of N(0, 1) at y (Gneiting and Raftery): y (2 F - 1) + 2 f - 1/sqrt(pi)."""
    from statistics import NormalDist

    law, y = NormalDist(), 0.3
    expected = y * (2 * law.cdf(y) - 1) + 2 * law.pdf(y) - 1 / np.sqrt(np.pi)
    assert crps([law.inv_cdf(q) for q in QUANTILES], y) == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
def test_the_default_mixture_forecasts_a_season():
    """Members of two precisions draw paths together."""
    time = np.arange(400)
    values = 20 + 5 * np.sin(2 * np.pi * time / 12) + np.random.default_rng(0).normal(size=400) * 0.5
    learner = TableLearner(Options(), [], [TargetShape("regression", 0, 0)])
    learner.learn(learner.rows(np.zeros((400, 0)), values[:, None])).wait()
    steps = forecast(learner, 12)
    expected = 20 + 5 * np.sin(2 * np.pi * np.arange(400, 412) / 12)
    assert np.abs([step["predicted"] for step in steps] - expected).mean() < 0.8
    assert np.mean([step["low"] < y < step["high"] for step, y in zip(steps, expected, strict=True)]) > 0.8


def test_the_noise_of_a_trending_series_keeps_its_size():
    rng = np.random.default_rng(2)
    values = 10 * np.cumsum(1 + 0.1 * rng.normal(size=400))
    table = TableLearner(make_options(model="linear"), [], [TargetShape("regression")], limits=False)
    table.learn(table.rows(np.zeros((400, 0)), values[:, None])).wait()
    drawn = table_paths(table, 2)
    assert np.std(drawn[:, 0]) == pytest.approx(1.0, rel=0.25)
    assert np.median(drawn[:, 1]) == pytest.approx(values[-1] + 20, abs=3)
