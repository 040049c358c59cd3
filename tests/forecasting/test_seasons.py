"""Periods: a day and a week, one of them, or none; and when they are looked for."""

import numpy as np
import pytest

from natkal.forecasting.seasons import find_seasons, looked_at


def _day_and_week(weeks, day=24, noise=0.3):
    rng = np.random.default_rng(0)
    time = np.arange(7 * day * weeks)
    week = np.repeat([0.0, 0.2, 0.1, 0.0, 0.3, 2.5, 3.0], day)
    return 3 * np.sin(2 * np.pi * time / day) + np.tile(week, weeks) + noise * rng.normal(size=len(time))


def test_a_day_and_a_week_are_found():
    assert find_seasons(_day_and_week(6)) == (24, 168)
    assert find_seasons(_day_and_week(2)) == (24,)


@pytest.mark.parametrize("make", [lambda e: e, np.cumsum])
def test_noise_and_walks_have_none(make):
    found = [find_seasons(make(np.random.default_rng(seed).normal(size=400))) for seed in range(10)]
    assert sum(bool(one) for one in found) <= 1


def test_they_are_looked_for_now_and_then():
    counts = [looked_at(count) for count in range(1, 2000)]
    assert all(0 <= count - looked <= max(12, count / 8) for count, looked in enumerate(counts, 1))
    assert len(set(counts)) < 60
