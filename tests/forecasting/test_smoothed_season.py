"""Seasonal ARIMA candidates against closed forms: the season, the filter, and forecasts of known processes."""

import numpy as np

from natkal.forecasting import smoothed_season
from natkal.forecasting.smoothed_season import (
    ARMA_COUNT,
    CONSTANT_VARIANCE,
    DIFFERENCED_LAGS,
    FIRST_LEARNED,
    FIRST_PHI,
    KEPT,
    LAGS,
    WEIGHT_VARIANCE,
    SmoothedSeason,
    error_growth,
    roll_arma,
)

FREE = np.array([[-1e9], [1e9]])


def _learned(values, season, horizon=12):
    series = SmoothedSeason(1, season, horizon)
    return series, [series.learn(np.array([value])) for value in values][-1]


def test_the_season_is_a_mean_at_first_and_exponential_smoothing_later():
    """S <- S + g (y - S), with g = 1/(k + 1) up to 1 - K."""
    values = np.random.default_rng(0).normal(size=5 * 40)
    series, _ = _learned(values, (5,))
    for place, kept in enumerate(KEPT):
        smoothed = values[:5].copy()
        for year, row in enumerate(values[5:].reshape(-1, 5), 1):
            smoothed += max(1 - kept, 1 / (year + 1)) * (row - smoothed)
        np.testing.assert_allclose(series.smoothed[0][0, place], smoothed, rtol=1e-12)
    assert 0.03 < 1 / 4 < 1 - KEPT[0]
    few, _ = _learned(values[:15], (5,))
    np.testing.assert_allclose(few.smoothed[0][0, 2], values[:15].reshape(3, 5).mean(axis=0), rtol=1e-12)


def test_the_filter_is_ridge_regression_on_its_inputs(monkeypatch):
    """With a noise of variance 1, theta minimises sum (x - z theta)^2 + (theta - mean)' V^-1 (theta - mean)."""
    seen = []
    plain = smoothed_season._design

    def kept(*arguments):
        seen.append(plain(*arguments))
        return seen[-1]

    monkeypatch.setattr(smoothed_season, "_design", kept)
    monkeypatch.setattr(smoothed_season, "LEAST_VARIANCE", 0.0)
    monkeypatch.setattr(SmoothedSeason, "_deviation", property(lambda self: np.ones((1, ARMA_COUNT))))
    noise = np.random.default_rng(1).choice([-1.0, 1.0], size=80)  # squares of 1: the mean square is close to 1
    series = SmoothedSeason(1, (), 3)
    series.heard, series.squares = 1e12, np.full((1, ARMA_COUNT), 1e12)
    monkeypatch.setattr(smoothed_season, "ERROR_KEPT", 1.0)
    values = np.cumsum(noise)
    for value in values:
        series.learn(np.array([value]))
    design = np.stack(seen)[FIRST_LEARNED - 1 :]
    for place in (0, ARMA_COUNT - 1):
        differenced = place >= len(KEPT)
        lags = DIFFERENCED_LAGS if differenced else LAGS
        learned = [*range(lags), LAGS if differenced else LAGS + 1]
        variances = np.array(
            [*(WEIGHT_VARIANCE / np.arange(1, lags + 1)), WEIGHT_VARIANCE if differenced else CONSTANT_VARIANCE]
        )
        mean = np.where(np.arange(lags + 1) == 0, 0.0 if differenced else FIRST_PHI, 0.0)
        z = design[:, 0, place, learned]
        target = (np.diff(values) if differenced else values[1:])[-len(z) :]
        expected = np.linalg.solve(np.diag(1 / variances) + z.T @ z, z.T @ target + mean / variances)
        np.testing.assert_allclose(series.belief.mean[0, place, learned], expected, rtol=1e-6, atol=1e-8)


def test_an_exact_season_with_a_trend_is_continued():
    """Differences of the remainder of y = a t + season are 0 once the smoothed season runs parallel to it."""
    time = np.arange(52 * 6)
    values = 0.5 * time + 3 * np.sin(2 * np.pi * time / 6)
    _, origin = _learned(values[:300], (6,))
    made = roll_arma(origin, FREE, (6,), 12)[0]
    np.testing.assert_allclose(made[len(KEPT)], values[300:], atol=1e-6)


def test_an_autoregression_is_found_and_forecast():
    """Of x_t = 1.5 x_{t-1} - 0.8 x_{t-2} + e_t around a season: the median error is near that of the true weights."""
    rng = np.random.default_rng(2)
    x = np.zeros(1000)
    for at in range(2, len(x)):
        x[at] = 1.5 * x[at - 1] - 0.8 * x[at - 2] + rng.normal()
    season = np.tile(10 * rng.normal(size=7), 200)[: len(x)]
    series = SmoothedSeason(1, (7,), 2)
    origins = [series.learn(np.array([value])) for value in x + season]
    assert np.abs(series.belief.mean[0, 2, :3] - [1.5, -0.8, 0.0]).max() < 0.12
    made = np.stack([roll_arma(origin, FREE, (7,), 2)[0, 2] for origin in origins[500:998]])
    true = 1.5 * x[500:998] - 0.8 * x[499:997]
    best = np.abs(x[501:999] - true).mean()
    assert np.abs((x + season)[501:999] - made[:, 0]).mean() < 1.06 * best


def test_two_seasons_are_told_apart_and_series_side_by_side_are_those_alone():
    rng = np.random.default_rng(3)
    week = np.repeat([0.0, 0.0, 0.0, 0.0, 0.0, 4.0, -4.0], 5)
    days = np.tile([1.0, 3.0, -2.0, 0.0, 5.0], 140) + np.tile(week, 20)
    values = np.stack([days, days + 0.1 * rng.normal(size=700)])
    both, alone = SmoothedSeason(2, (5, 35), 40), SmoothedSeason(1, (5, 35), 40)
    for at in range(660):
        origin, one = both.learn(values[:, at]), alone.learn(values[:1, at])
    made = roll_arma(origin, np.repeat(FREE, 2, axis=1), (5, 35), 40)
    np.testing.assert_allclose(made[0, 2], values[0, 660:], atol=0.6)  # the days alone miss by 4
    np.testing.assert_allclose(made[:1], roll_arma(one, FREE, (5, 35), 40), rtol=1e-9)


def test_errors_grow_as_the_learned_process_says():
    """The h-th psi is what one more unit of error in the last value adds to the forecast h steps ahead."""
    values = np.cumsum(np.random.default_rng(4).normal(size=150))
    _, origin = _learned(values, (), 8)
    moved = origin._replace(x=origin.x + np.eye(LAGS + 1)[0], error=origin.error + 1.0)
    psi = (roll_arma(moved, FREE, (), 8) - roll_arma(origin, FREE, (), 8))[0]
    expected = np.sqrt(1 + np.cumsum(np.pad(psi, ((0, 0), (1, 0)))[:, :-1] ** 2, axis=1))
    np.testing.assert_allclose(error_growth(origin, (), 8)[0], expected, rtol=1e-9)


def test_errors_enter_the_season_to_come():
    """Without an ARMA process psi_m, psi_2m are the gain of the season, and all others 0."""
    _, origin = _learned(np.random.default_rng(5).normal(size=90), (4,), 9)
    still = origin._replace(weights=np.zeros_like(origin.weights))
    gain = 1 - np.array(KEPT)
    expected = np.sqrt([1 + gain**2 * (step // 4) for step in range(9)]).T
    found = error_growth(still, (4,), 9)[0, : len(KEPT)]
    np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-9)
