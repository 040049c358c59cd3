"""Simple forecasts against closed forms, and the combination against what it must do at its ends."""

import numpy as np
import pytest

from natkal.forecasting import simple_forecasts
from natkal.forecasting.combination import COUNT_OF_ALL, Combination, combined_paths
from natkal.forecasting.simple_forecasts import CANDIDATES, DRIFTING, NAIVE, SimpleForecasts, roll
from natkal.tables.learner.past import Past


def _place(base):
    return next(place for place, one in enumerate(CANDIDATES) if one.base == base)


def _season(count, period=6):
    return 0.5 * np.arange(count) + 3 * np.sin(2 * np.pi * np.arange(count) / period)


def test_a_filter_is_ridge_regression_with_fading(monkeypatch):
    """theta minimises sum k^(n-i) (e_i - z_i theta)^2 / r_i + k^n theta' V^-1 theta, with k = 1 - fading."""
    seen = []
    plain = simple_forecasts._design

    def kept(*arguments):
        seen.append(plain(*arguments))
        return seen[-1]

    monkeypatch.setattr(simple_forecasts, "_design", kept)
    monkeypatch.setattr(simple_forecasts, "LARGEST_ERROR", 1e9)
    values = np.cumsum(np.random.default_rng(0).normal(size=90)) + _season(90)
    series = SimpleForecasts(3)
    scales, variances = [], []
    for value in values:
        scales.append(series._scale if series.values else 1.0)
        variances.append(series.noise_variance)
        series.learn(value)
    later, scales, variances = (np.array(one[-len(seen) :]) for one in (values, scales, variances))
    for place, one in enumerate(CANDIDATES):
        if not one.prior:
            assert not series.weights[place].any()
            continue
        learned = one.variances > 0
        base, z = (np.stack([part[place] for part in parts]) for parts in zip(*seen, strict=True))
        error, z = (later - base) / scales, z[:, learned]
        kept_share = (1 - one.fading) ** np.arange(len(z) - 1, -1, -1) / variances[:, place]
        prior = (1 - one.fading) ** len(z) * np.diag(1 / one.variances[learned])
        expected = np.linalg.solve(prior + (z.T * kept_share) @ z, (z.T * kept_share) @ error)
        np.testing.assert_allclose(series.weights[place][learned], expected, rtol=1e-6, atol=1e-9)
        assert not series.weights[place][~learned].any()


def test_a_season_with_a_trend_is_continued():
    values = _season(112)
    series = SimpleForecasts(12)
    made = roll([series.learn(value) for value in values[:100]], 12)
    assert series.past.season == 6
    np.testing.assert_allclose(made[-1, _place(NAIVE)], values[100:], atol=1e-9)
    drifting = [*values[94:100]]  # half of the change since goes into each step, so half of the trend is lost
    for step in range(6):
        before = values[99] if step == 0 else drifting[-1]
        drifting.append(values[94 + step] + 0.5 * (before - values[93 + step]))
    np.testing.assert_allclose(made[-1, _place(DRIFTING)][:6], drifting[6:], atol=1e-9)


@pytest.mark.parametrize("positive", [False, True])
def test_values_may_come_in_pieces(positive):
    rng = np.random.default_rng(1)
    values = np.exp(0.01 * np.arange(130) + 0.2 * _season(130, 4) / 3 + 0.1 * rng.normal(size=130))
    whole, pieces = Combination(5, 0, positive), Combination(5, 0, positive)
    whole.extend(values)
    for part in np.array_split(values, 23):
        pieces.extend(part)
    np.testing.assert_array_equal(whole.made[0], pieces.made[0])
    np.testing.assert_array_equal(whole.losses, pieces.losses)
    np.testing.assert_array_equal(whole.spread.tail, pieces.spread.tail)
    np.testing.assert_array_equal(whole.spread.told[0].width, pieces.spread.told[0].width)
    assert len(whole.losses) == COUNT_OF_ALL * (1 + positive)


def test_the_next_forecast_goes_on_where_the_last_one_ended():
    rng = np.random.default_rng(2)
    values = np.cumsum(rng.normal(size=140))
    drawn = values[99] + rng.normal(size=(64, 6))
    once, often = Past(0, None), Past(0, None)
    for place, value in enumerate(values):
        for past in (once, often):
            past.learn(value)
        if place > 60 and place % 7 == 0:
            combined_paths(drawn, often, "", np.array(often.known[""]))
    np.testing.assert_array_equal(combined_paths(drawn, once, "", values), combined_paths(drawn, often, "", values))


def test_paths_keep_their_order_and_a_mixture_that_expects_to_be_much_better_stays():
    rng = np.random.default_rng(3)
    values = np.cumsum(rng.normal(size=200))
    combination = Combination(4, 0, False)
    combination.extend(values)
    drawn = values[-1] + np.cumsum(rng.normal(size=(256, 4)), axis=1)
    moved = combination.paths(drawn)
    np.testing.assert_array_equal(np.argsort(drawn, axis=0), np.argsort(moved, axis=0))
    sharp = values[-1] + 5.0 + 1e-3 * (drawn - values[-1])
    np.testing.assert_allclose(combination.paths(sharp), sharp, atol=1e-6)
    wide = values[-1] + 1e3 * (drawn - values[-1])
    far = np.abs(np.median(combination.paths(wide), axis=0) - combination.made[0][-1])
    assert (far < 0.05 * np.ptp(combination.paths(wide), axis=0)).all()


def test_intervals_of_a_random_walk_hold_what_they_say():
    rng = np.random.default_rng(4)
    values = np.cumsum(rng.normal(size=912))
    combination, inside = Combination(12, 0, False), []
    combination.extend(values[:100])
    for origin in range(100, 900, 4):
        drawn = values[origin - 1] + np.cumsum(rng.normal(size=(200, 12)), axis=1)
        low, high = np.quantile(combination.paths(drawn), [0.05, 0.95], axis=0)
        inside.append((low <= values[origin : origin + 12]) & (values[origin : origin + 12] <= high))
        combination.extend(values[origin : origin + 4])
    share = np.mean(inside, axis=0)
    assert (share > 0.8).all()  # three deviations of the share of 67 stretches of 12 rows
    assert 0.85 < share.mean() < 0.95


@pytest.mark.parametrize(
    "values", [np.full(80, 7.0), np.zeros(80), np.r_[np.zeros(79), 1e90], np.r_[np.ones(79), 1e-300]]
)
def test_odd_series_give_finite_paths(values):
    combination = Combination(6, 0, bool((values > 0).all()))
    combination.extend(values)
    assert np.isfinite(combination.paths(np.random.default_rng(0).normal(size=(32, 6)))).all()


@pytest.mark.parametrize("scale", [np.array, np.log])
def test_a_jump_is_followed_within_twenty_values_and_widens_the_intervals_for_a_while(scale):
    rng = np.random.default_rng(0)
    values = scale(np.r_[10 + 0.5 * rng.normal(size=100), 1010 + 0.5 * rng.normal(size=20)])
    combination = Combination(6, 0, True)
    combination.extend(values)
    wild = values[-1] + np.cumsum(rng.normal(size=(512, 6)), axis=1) * np.ptp(values)  # a mixture that is lost
    low, middle, high = np.quantile(combination.paths(wild), [0.05, 0.5, 0.95], axis=0)
    np.testing.assert_allclose(middle, values[-1], rtol=0.01)
    assert (high - low < 0.25 * np.ptp(values)).all()
