"""The spread of forecasts from their errors: its formula, known noise, and noise that comes in bursts."""

import numpy as np
import pytest

from natkal.forecasting.error_spread import GROWTH_ERRORS, LEAST_ERRORS, SPREAD_KEPT, ErrorSpread

LEAST = np.full((1, 1), 1e-9)


def _told(errors, growth):
    """After errors (n, horizon), each of a forecast made that many steps before."""
    spread = ErrorSpread(1, 0, len(growth))
    for at in range(len(errors) + 1):
        if at:
            known = min(at, len(growth))
            spread.learn(errors[None, at - 1, :known], LEAST)
        spread.tell(growth[None], LEAST)
    return spread


def _power(spread):
    told = spread.told[0]
    return np.log(told.spread[0, 0] / told.deviation[0, 0]) / np.log(told.recent[0])


def test_errors_are_drawn_towards_the_growth_of_the_process():
    """log s(h) = log g(h) + (n/h log o(h)/g(h) + 30 r) / (n/h + 30), r the mean of log o/g by n/h."""
    errors = np.abs(np.random.default_rng(0).normal(size=(80, 4)))
    steps, growth = np.arange(1, 5), np.array([1.0, 1.5, 1.8, 2.0])
    own, count = np.zeros(4), np.zeros(4)
    for step in steps - 1:
        kept = SPREAD_KEPT ** np.arange(80 - step)[::-1]
        own[step] = np.sqrt(np.pi / 2) * (kept @ errors[step:, step]) / kept.sum()
        count[step] = kept.sum() / (step + 1)
    ratios = np.log(own / growth)
    drawn = (count * ratios + GROWTH_ERRORS * (count @ ratios) / count.sum()) / (count + GROWTH_ERRORS)
    np.testing.assert_allclose(_told(errors, growth).told[0].deviation[0], growth * np.exp(drawn), rtol=1e-6)


def test_steady_noise_gets_a_steady_spread_and_bursts_do_not():
    rng = np.random.default_rng(1)
    growth, bursts = np.ones(3), np.where(np.arange(600) // 40 % 2, 4.0, 0.5)[:, None]
    steady, wild = [], []
    for _ in range(5):
        noise = np.repeat(np.abs(rng.normal(size=(600, 1))), 3, axis=1)  # errors of all steps move together
        steady.append(_told(noise, growth))
        wild.append(_told(noise * bursts, growth))
    assert np.mean([_power(one) for one in steady]) < 0.35  # half of the best constant of many series
    assert np.mean([_power(one) for one in wild]) > 0.6
    assert np.mean([one.told[0].spread.mean() for one in steady]) == pytest.approx(1.0, abs=0.1)


def test_intervals_of_heavy_tails_hold_ninety_percent():
    noise = np.abs(np.random.default_rng(2).standard_cauchy(size=(1500, 2)))
    spread, held = ErrorSpread(1, 0, 2), []
    for at, errors in enumerate(noise):
        if at:
            held.append(
                errors[: min(at, 2)] <= [told.width[0, step] for step, told in enumerate(list(spread.told)[:at])]
            )
            spread.learn(errors[None, : min(at, 2)], LEAST)
        spread.tell(np.ones((1, 2)), LEAST)
    assert 0.87 < np.mean(held[300:]) < 0.93


def test_a_spread_is_known_after_as_many_errors():
    for count in (LEAST_ERRORS - 1, LEAST_ERRORS):
        spread = _told(np.ones((count, 2)), np.ones(2))
        assert spread.known == np.isfinite(spread.told[0].spread[0, 0]) == (count == LEAST_ERRORS)
        assert np.isnan(spread.told[0].spread[0, 1])


def test_quantiles_stay_in_order_at_every_tail():
    spread, normal = ErrorSpread(1, 0, 3), np.linspace(-3, 3, 101)
    spread.tail = np.array([[-0.2, 0.0, 1.0]])
    made = spread.stretched(normal)
    assert (np.diff(made, axis=0) > 0).all()
    np.testing.assert_array_equal(made[:, 1], normal)
