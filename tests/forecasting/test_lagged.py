"""Forecasts from earlier values against closed forms."""

import numpy as np

from natkal.forecasting import lagged
from natkal.forecasting.lagged import CANDIDATES, DRIFTING, NAIVE, LaggedForecasts, roll
from natkal.tables.learner.past import Past


def _place(base):
    return next(place for place, one in enumerate(CANDIDATES) if one.base == base)


def _season(count, period=6):
    return 0.5 * np.arange(count) + 3 * np.sin(2 * np.pi * np.arange(count) / period)


def test_a_filter_is_ridge_regression_with_fading(monkeypatch):
    """theta minimises sum k^(n-i) (e_i - z_i theta)^2 / r_i + k^n theta' V^-1 theta, with k = 1 - fading."""
    seen = []
    plain = lagged._design

    def kept(*arguments):
        seen.append(plain(*arguments))
        return seen[-1]

    monkeypatch.setattr(lagged, "_design", kept)
    monkeypatch.setattr(lagged, "LARGEST_ERROR", 1e9)
    values = np.cumsum(np.random.default_rng(0).normal(size=90)) + _season(90)
    series = LaggedForecasts(1, 6, 3)
    scales, variances = [], []
    for value in values:
        scales.append(series._scale[0] if series.count else 1.0)
        variances.append(series.noise_variance[0])
        series.learn(np.array([value]))
    later, scales, variances = (np.array(one[-len(seen) :]) for one in (values, scales, variances))
    for place, one in enumerate(CANDIDATES):
        weights = series.belief.mean[0, place]
        if not one.prior:
            assert not weights.any()
            continue
        chosen = one.variances > 0
        base, z = (np.stack([part[0, place] for part in parts]) for parts in zip(*seen, strict=True))
        error, z = (later - base) / scales, z[:, chosen]
        kept_share = (1 - one.fading) ** np.arange(len(z) - 1, -1, -1) / variances[:, place]
        prior = (1 - one.fading) ** len(z) * np.diag(1 / one.variances[chosen])
        expected = np.linalg.solve(prior + (z.T * kept_share) @ z, (z.T * kept_share) @ error)
        np.testing.assert_allclose(weights[chosen], expected, rtol=1e-6, atol=1e-9)
        assert not weights[~chosen].any()


def test_a_season_with_a_trend_is_continued():
    values = _season(112)
    series = LaggedForecasts(1, 6, 12)
    origin = [series.learn(np.array([value])) for value in values[:100]][-1]
    made = roll(origin, series.limits, 6, 12)[0]
    np.testing.assert_allclose(made[_place(NAIVE)], values[100:], atol=1e-9)
    drifting = [*values[94:100]]  # half of the change since goes into each step, so half of the trend is lost
    for step in range(6):
        before = values[99] if step == 0 else drifting[-1]
        drifting.append(values[94 + step] + 0.5 * (before - values[93 + step]))
    np.testing.assert_allclose(made[_place(DRIFTING)][:6], drifting[6:], atol=1e-9)


def test_the_inputs_are_those_of_the_past(monkeypatch):
    seen = []
    plain = lagged._inputs
    monkeypatch.setattr(lagged, "_inputs", lambda *arguments: seen.append(plain(*arguments)) or seen[-1])
    values = _season(100) + np.random.default_rng(1).normal(size=100)
    past, series = Past(0, None), LaggedForecasts(1, 6, 3)
    for value in values:
        series.learn(np.array([value]))
        past.learn(value)
    assert past.season == 6
    series.learn(np.zeros(1))
    np.testing.assert_allclose(seen[-1][0, 0, : lagged.FROM_PAST], past.inputs())
