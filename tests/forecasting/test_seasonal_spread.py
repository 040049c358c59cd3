"""Factors of the spread by the place in the period: their formula, their limits, and intervals that they make right."""

import numpy as np

from natkal.forecasting.error_spread import ErrorSpread
from natkal.forecasting.seasonal_spread import KEPT, LARGEST_ERROR, SeasonalSpread


def test_a_factor_is_the_faded_mean_error_of_a_place_and_its_neighbours_over_that_of_all():
    rng, season, count = np.random.default_rng(0), 5, 83
    relative = np.abs(rng.normal(size=(count, 3))) * (1 + np.arange(count)[:, None] % season)
    spread = SeasonalSpread(1, season)
    for row, errors in enumerate(relative):
        spread.learn(errors[None], row)
    kept = KEPT ** np.arange(count)[::-1]
    places = np.arange(count)[:, None] % season == np.arange(season)
    errors = np.minimum(relative, LARGEST_ERROR).mean(axis=1)
    ring = np.eye(season) + 0.5 * (np.roll(np.eye(season), 1, axis=0) + np.roll(np.eye(season), -1, axis=0))
    sums, counts = ring @ (places.T @ (kept * errors)), ring @ (places.T @ kept)
    expected = (10 + sums * kept.sum() / (kept @ errors)) / (10 + counts)
    np.testing.assert_allclose(spread.factors(np.arange(count, count + 7))[0], expected[(count + np.arange(7)) % 5])


def test_without_a_period_and_before_all_places_are_known_all_factors_are_one():
    none, four = SeasonalSpread(1, 0), SeasonalSpread(1, 4)
    for row in range(40):
        assert (none.factors(np.arange(row, row + 4)) == 1).all()
        assert row > 4 or (four.factors(np.arange(row, row + 4)) == 1).all()
        none.learn(np.array([[5.0 if row % 2 else 0.1]]), row)
        four.learn(np.array([[5.0 if row % 4 > 1 else 0.1, np.nan]]), row)
    low, high = four.factors(np.array([40, 42]))[0]
    assert low < 0.9 < 1.1 < high


def test_intervals_hold_at_each_place_where_the_noise_depends_on_the_season():
    """90 percent at every place of the period, where one spread for all places holds 100 and 75 percent."""
    rng, season, rows = np.random.default_rng(1), 6, 3000
    sizes = np.array([0.5, 0.5, 0.5, 2.0, 2.0, 2.0])
    least = np.full((1, 1), 1e-9)
    errors = np.abs(rng.normal(size=rows)) * sizes[np.arange(rows) % season]
    spread, held = ErrorSpread(1, season, 1), np.zeros(rows, bool)
    for row, error in enumerate(errors):
        if row:
            held[row] = error <= spread.told[0].width[0, 0] * spread.told[0].factor[0, 0]
            spread.learn(errors[None, row : row + 1], least, row)
        spread.tell(np.ones((1, 1)), least, row + 1)
    shares = held[600:].reshape(-1, season).mean(axis=0)
    assert (np.abs(shares[[1, 4]] - 0.9) < 0.045).all()  # three deviations of the share of 400
    assert 0.88 < shares.mean() < 0.92
