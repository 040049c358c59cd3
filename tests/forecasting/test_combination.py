"""The combination against what it must do at its ends, and series that repeat, jump, or come together."""

import numpy as np
import pytest

from natkal.forecasting.candidates import names
from natkal.forecasting.combination import Combination, Kept, combined_paths


def _combination(values, horizon, periods=(), positive=False):
    made = Combination(1, horizon, periods, positive)
    made.extend(values[None])
    return made


@pytest.mark.parametrize("positive", [False, True])
def test_values_may_come_in_pieces(positive):
    rng = np.random.default_rng(1)
    season = 0.5 * np.arange(130) + 3 * np.sin(2 * np.pi * np.arange(130) / 4)
    values = np.exp(0.01 * np.arange(130) + 0.2 * season / 3 + 0.1 * rng.normal(size=130))
    whole, pieces = _combination(values, 5, (4,), positive), Combination(1, 5, (4,), positive)
    for part in np.array_split(values, 23):
        pieces.extend(part[None])
    np.testing.assert_array_equal(whole.made[0], pieces.made[0])
    np.testing.assert_array_equal(whole.losses, pieces.losses)
    np.testing.assert_array_equal(whole.spread.tail, pieces.spread.tail)
    np.testing.assert_array_equal(whole.spread.told[0].width, pieces.spread.told[0].width)
    assert whole.losses.shape[1] == len(whole.names) == len(names((4,), positive)) == len(set(whole.names))


def test_the_next_forecast_goes_on_where_the_last_one_ended():
    rng = np.random.default_rng(2)
    values = np.cumsum(rng.normal(size=140)) + np.tile([0.0, 5.0, -3.0, 0.0], 35)
    drawn, kept = values[99] + rng.normal(size=(64, 6)), Kept()
    for count in range(60, 140, 7):
        often = combined_paths([drawn], [values[:count]], [count], kept)[0]
        np.testing.assert_array_equal(often, combined_paths([drawn], [values[:count]], [count])[0])


def test_series_of_all_lengths_together_are_those_alone():
    rng = np.random.default_rng(5)
    known = [np.cumsum(rng.normal(size=count)) for count in (90, 20, 90, 70)]
    known.append(10 + np.tile([1.0, 2.0, 4.0, 0.0, 3.0], 18) + 0.1 * rng.normal(size=90))
    drawn = [values[-1] + rng.normal(size=(32, 5)) for values in known]
    together = combined_paths(drawn, known, [len(values) for values in known])
    for own, values, paths in zip(together, known, drawn, strict=True):
        np.testing.assert_allclose(own, combined_paths([paths], [values], [len(values)])[0], rtol=1e-7, atol=1e-9)


def test_a_series_that_repeats_exactly_is_forecast_exactly():
    day = np.random.default_rng(6).uniform(1, 9, 6)
    values = np.tile(np.repeat([1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 0.2], 6) * np.tile(day, 7), 6)
    combination = _combination(values[:210], 12, (6, 42), True)
    np.testing.assert_allclose(combination.made[0][0, -1], values[210:222], atol=1e-6)
    moved = combination.paths([values[209] + 9 * np.random.default_rng(0).normal(size=(64, 12))])[0]
    assert np.abs(np.median(moved, axis=0) - values[210:222]).mean() < 0.05 * np.ptp(values)


def test_paths_keep_their_order_and_a_mixture_that_expects_to_be_much_better_stays():
    rng = np.random.default_rng(3)
    values = np.cumsum(rng.normal(size=200))
    combination = _combination(values, 4)
    drawn = values[-1] + np.cumsum(rng.normal(size=(256, 4)), axis=1)
    moved = combination.paths([drawn])[0]
    np.testing.assert_array_equal(np.argsort(drawn, axis=0), np.argsort(moved, axis=0))
    sharp = values[-1] + 5.0 + 1e-3 * (drawn - values[-1])
    np.testing.assert_allclose(combination.paths([sharp])[0], sharp, atol=1e-6)
    wide = values[-1] + 1e3 * (drawn - values[-1])
    far = np.abs(np.median(combination.paths([wide])[0], axis=0) - combination.made[0][0, -1])
    assert (far < 0.05 * np.ptp(combination.paths([wide])[0], axis=0)).all()


def test_intervals_of_a_random_walk_hold_what_they_say():
    rng = np.random.default_rng(4)
    values = np.cumsum(rng.normal(size=912))
    combination, inside = _combination(values[:100], 12), []
    for origin in range(100, 900, 4):
        drawn = values[origin - 1] + np.cumsum(rng.normal(size=(200, 12)), axis=1)
        low, high = np.quantile(combination.paths([drawn])[0], [0.05, 0.95], axis=0)
        inside.append((low <= values[origin : origin + 12]) & (values[origin : origin + 12] <= high))
        combination.extend(values[None, origin : origin + 4])
    share = np.mean(inside, axis=0)
    assert (share > 0.8).all()  # three deviations of the share of 67 stretches of 12 rows
    assert 0.85 < share.mean() < 0.95


@pytest.mark.parametrize(
    "values", [np.full(80, 7.0), np.zeros(80), np.r_[np.zeros(79), 1e90], np.r_[np.ones(79), 1e-300]]
)
def test_odd_series_give_finite_paths(values):
    combination = _combination(values, 6, positive=bool((values > 0).all()))
    assert np.isfinite(combination.paths([np.random.default_rng(0).normal(size=(32, 6))])[0]).all()


@pytest.mark.parametrize("scale", [np.array, np.log])
def test_a_jump_is_followed_within_twenty_values_and_widens_the_intervals_for_a_while(scale):
    rng = np.random.default_rng(0)
    values = scale(np.r_[10 + 0.5 * rng.normal(size=100), 1010 + 0.5 * rng.normal(size=20)])
    combination = _combination(values, 6, positive=True)
    wild = values[-1] + np.cumsum(rng.normal(size=(512, 6)), axis=1) * np.ptp(values)  # a mixture that is lost
    low, middle, high = np.quantile(combination.paths([wild])[0], [0.05, 0.5, 0.95], axis=0)
    np.testing.assert_allclose(middle, values[-1], rtol=0.01)
    assert (high - low < 0.25 * np.ptp(values)).all()
