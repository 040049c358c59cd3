"""Structural candidates against the joint normal law of all values, and on series whose law is known."""

import collections

import numpy as np
import pytest

from natkal.forecasting import structural
from natkal.forecasting.structural import STRUCTURAL_COUNT, StructuralForecasts
from natkal.forecasting.structural_laws import (
    FIRST_SLOPE_VARIANCE,
    FIRST_VARIANCE,
    KINDS,
    LAWS,
    PROCESS,
    SEASONS,
    Laws,
    harmonics,
)


def _learned(values, season, horizon=12):
    series = StructuralForecasts(1, (season,) if season else (), horizon)
    return series, [series.learn(np.array([value]))[0] for value in values]


def _harmonic_covariance(law, angle, times):
    """Between all pairs of times: the first harmonic turned, and the noise that came since, turned as well."""
    earlier, apart = np.minimum.outer(times, times), np.subtract.outer(times, times)
    return (FIRST_VARIANCE + law.season * earlier) * np.cos(angle * apart)


def _trend_covariance(law, times):
    """Of sums of slopes: each is what its loading is at both times, summed over where it came from."""
    count = len(times)
    loading = np.zeros((count, 2 * count + 1))  # the first slope, then the noise of every step in slope and in level
    for at in times:
        loading[at, 0] = sum(law.damping**step for step in range(at))
        for step in range(at):  # noise at the end of a step moves the values from the next on
            loading[at, 1 + step] = sum(law.damping**more for more in range(at - step - 1))
            loading[at, 1 + count + step] = 1.0
    first = FIRST_SLOPE_VARIANCE if law.kind else 0.0
    variances = np.r_[first, np.full(count, law.slope), np.full(count, law.level)]
    return FIRST_VARIANCE + (loading * variances) @ loading.T


def _process_covariance(law, times):
    """Autocovariances of an AR(2) process by its moving average, long enough to have died out."""
    psi = np.zeros(4000)
    psi[0], psi[1] = 1.0, law.process[0]
    for at in range(2, len(psi)):
        psi[at] = law.process[0] * psi[at - 1] + law.process[1] * psi[at - 2]
    lags = [psi[lag:] @ psi[: len(psi) - lag] for lag in range(len(times))]
    return np.array(lags)[np.abs(np.subtract.outer(times, times))]


@pytest.mark.parametrize("season", [0, 5, 6])
def test_a_law_forecasts_what_the_joint_normal_law_does(season, monkeypatch):
    """E(y_later | y_known) = y_0 + C_later,known C_known^-1 (y_known - y_0), with y_0 the prior mean of the level."""
    monkeypatch.setattr(structural, "ROWS_BEFORE", 1000)
    known, horizon = 30, 12
    values = np.cumsum(np.random.default_rng(0).normal(size=known))
    series, _ = _learned(values, season, horizon)
    found = (series.laws.ahead(horizon) @ series.state)[:, :, 0]
    times = np.arange(known + horizon)
    for place in range(0, len(LAWS), 7):
        law = LAWS[place]
        cov = _trend_covariance(law, times) + _process_covariance(law, times)
        for angle in harmonics(season) if season else ():
            cov = cov + _harmonic_covariance(law, angle, times)
        weights = np.linalg.solve(cov[:known, :known], values - values[0])
        expected = values[0] + cov[known:, :known] @ weights
        np.testing.assert_allclose(found[place], expected, rtol=1e-5, atol=1e-5)


def test_each_process_level_and_slope_has_one_season_and_all_are_used_alike():
    seen = collections.Counter(law[:5] for law in LAWS)
    assert set(seen.values()) == {1}
    seasons = collections.Counter(round(law.season / max(law.level, 1.0), 9) for law in LAWS)
    assert len(seasons) == len(SEASONS)
    assert max(seasons.values()) - min(seasons.values()) <= len(KINDS)


def test_a_line_with_a_season_is_continued():
    time = np.arange(112)
    values = 0.5 * time + 3 * np.sin(2 * np.pi * time / 6) + (-1.0) ** time
    _, made = _learned(values[:100], 6)
    np.testing.assert_allclose(made[-1][KINDS.index("line")], values[100:], atol=1e-3)


def test_the_likelihood_tells_a_random_walk_from_noise():
    rng = np.random.default_rng(1)
    for values, levels in ((rng.normal(size=200), {0.0}), (np.cumsum(rng.normal(size=200)), {3.0, 100.0})):
        series, _ = _learned(values, 0)
        np.testing.assert_allclose(np.add.reduceat(series.weights, structural.FIRST_OF_KIND), 1.0)
        first = [place for place, law in enumerate(LAWS) if law.kind == 0]
        best = max(first, key=lambda place: series.weights[place, 0])
        assert LAWS[best].level in levels


def test_an_outlier_moves_the_forecasts_little():
    values = np.random.default_rng(2).normal(size=120)
    wild = values.copy()
    wild[100] = 1e6
    _, plain = _learned(values, 0)
    _, struck = _learned(wild, 0)
    assert np.abs(struck[-1] - plain[-1])[:2].max() < 3.0


def test_forecasts_do_not_depend_on_the_units():
    values = np.random.default_rng(3).normal(size=80) + np.tile([0.0, 3.0, 1.0, -2.0], 20)
    _, plain = _learned(values, 4)
    _, other = _learned(1e5 + 250.0 * values, 4)
    np.testing.assert_allclose(other[-1], 1e5 + 250.0 * plain[-1], rtol=1e-6)


def test_series_side_by_side_and_two_seasons():
    time = np.arange(140)
    both = np.stack([np.sin(2 * np.pi * time / 5) + (time % 35 < 5), 0.1 * time + np.cos(2 * np.pi * time / 35)])
    together, alone = StructuralForecasts(2, (5, 35), 4), [StructuralForecasts(1, (5, 35), 4) for _ in both]
    assert together.laws.size == PROCESS + 2 * (len(harmonics(5)) + len(harmonics(35)))
    for values in both.T:
        made = together.learn(values)
        one_by_one = [series.learn(values[place : place + 1])[0] for place, series in enumerate(alone)]
        np.testing.assert_allclose(made, np.stack(one_by_one), rtol=1e-9, atol=1e-9)
    assert made.shape == (2, STRUCTURAL_COUNT, 4)


def test_gains_do_not_depend_on_when_they_are_asked_for():
    early, late = Laws((7,)), Laws((7,))
    early.gain(3)
    for one, other in zip(early.gain(20), late.gain(20), strict=True):
        np.testing.assert_array_equal(one, other)
