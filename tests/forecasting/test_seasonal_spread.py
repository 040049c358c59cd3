"""Factors of the spread by the place in the period: their formula, their limits, and intervals that they make right."""

import numpy as np

from natkal.forecasting.error_spread import ErrorSpread
from natkal.forecasting.seasonal_spread import KEPT, LARGEST_ERROR, SeasonalSpread


def test_a_factor_is_the_faded_mean_error_of_a_place_and_its_neighbours_over_that_of_all():
    rng, season, count = np.random.default_rng(0), 5, 83
    relative = np.abs(rng.normal(size=(count, 3))) * (1 + np.arange(count)[:, None] % season)
    spread = SeasonalSpread()
    spread.factors(np.arange(3), season)
    for row, errors in enumerate(relative):
        spread.learn(errors, row)
    kept = KEPT ** np.arange(count)[::-1]
    places = np.arange(count)[:, None] % season == np.arange(season)
    errors = np.minimum(relative, LARGEST_ERROR).mean(axis=1)
    ring = np.eye(season) + 0.5 * (np.roll(np.eye(season), 1, axis=0) + np.roll(np.eye(season), -1, axis=0))
    sums, counts = ring @ (places.T @ (kept * errors)), ring @ (places.T @ kept)
    expected = (10 + sums * kept.sum() / (kept @ errors)) / (10 + counts)
    np.testing.assert_allclose(
        spread.factors(np.arange(count, count + 7), season), expected[(count + np.arange(7)) % 5]
    )


def test_without_a_period_or_with_a_new_one_all_factors_are_one():
    spread = SeasonalSpread()
    for row in range(40):
        assert (spread.factors(np.arange(row, row + 4), 0) == 1).all()
        spread.learn(np.array([5.0 if row % 2 else 0.1]), row)
    spread.factors(np.arange(4), 4)
    for row in range(40):
        spread.learn(np.array([5.0 if row % 4 > 1 else 0.1, np.nan]), row)
    low, high = spread.factors(np.array([40, 42]), 4)
    assert low < 0.9 < 1.1 < high
    assert (spread.factors(np.arange(4), 6) == 1).all()


def test_intervals_hold_at_each_place_where_the_noise_depends_on_the_season():
    """90 percent at every place of the period, where one spread for all places holds 100 and 75 percent."""
    rng, season, rows = np.random.default_rng(1), 6, 3000
    sizes = np.array([0.5, 0.5, 0.5, 2.0, 2.0, 2.0])
    errors = np.abs(rng.normal(size=rows)) * sizes[np.arange(rows) % season]
    spread, held = ErrorSpread(1), np.zeros(rows, bool)
    for row, error in enumerate(errors):
        if row:
            held[row] = error <= spread.told[0].width[0] * spread.told[0].factor[0]
            spread.learn(errors[row : row + 1], 1e-9, row)
        spread.tell(np.ones(1), 1e-9, row + 1, season)
    shares = held[600:].reshape(-1, season).mean(axis=0)
    assert (np.abs(shares[[1, 4]] - 0.9) < 0.045).all()  # three deviations of the share of 400
    assert 0.88 < shares.mean() < 0.92
