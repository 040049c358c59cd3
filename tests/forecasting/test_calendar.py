"""Columns that go on by themselves: what all rows say, not the last eight."""

import datetime
import json

import numpy as np
import pytest

from natkal.forecasting.calendar import Clock, dates_ahead
from natkal.tables.schema.infer import Feature

NUMBER = Feature("x", "number", 1, False)
DAY = datetime.datetime


def _ahead(values, horizon=6, keys=()):
    clock = Clock()
    clock.observe([NUMBER], {"x": list(values)}, range(len(values)), list(keys))
    kept = Clock.restored(json.loads(json.dumps(clock.state())))
    found = clock.ahead(keys[-1] if keys else "", horizon)
    assert found == kept.ahead(keys[-1] if keys else "", horizon)
    return found.get("x")


@pytest.mark.parametrize(
    ("seen", "following"),
    [
        ([2000, 2001, 2002], [2003, 2004]),
        ([7, 7, 7], [7, 7]),
        ([*range(24)] * 3 + [*range(21)], [21, 22, 23, 0, 1, 2]),
        ([*range(9, 18)] * 4 + [*range(9, 16)], [16, 17, 9, 10]),
        (np.repeat(np.arange(2000, 2010), 12)[:113], [2009] * 7 + [2010, 2010]),
        (np.tile(np.repeat([1, 2, 3, 4], 3), 5)[:50], [1, 2, 2, 2, 3]),
        (([0] * 5 + [1] * 2) * 6 + [0] * 3, [0, 0, 1, 1, 0]),
        ([*range(24)] * 6 + [*range(11), *range(12, 24)], [0, 1, 2]),
    ],
    ids=["years", "constant", "hours", "opening hours", "years of months", "quarters", "weekends", "gap"],
)
def test_what_is_known_ahead(seen, following):
    assert _ahead(seen, len(following)) == following


@pytest.mark.parametrize(
    "seen",
    [
        [1, 2],
        [1, 2, 4],
        [0] * 40 + [1] + [0] * 60 + [1] + [0] * 8,
        [0] * 40 + [1] + [0] * 8,
        [20.1, 20.4, 19.8, 21.0, 20.2, 20.0, 19.9],
        np.random.default_rng(0).integers(0, 2, 60).tolist(),
        np.random.default_rng(0).integers(1, 7, 600).tolist(),
        np.cumsum(np.random.default_rng(0).normal(size=600)).tolist(),
    ],
    ids=["few", "no line", "rare flag", "one event", "measured", "coin", "dice", "walk"],
)
def test_what_is_not(seen):
    assert _ahead(seen) is None


def test_a_flag_that_was_seen_once_is_no_constant_however_long_ago():
    assert _ahead([1, *[0] * 5000]) is None


def test_keys_tell_each_other_what_follows_and_keep_their_own_place():
    hours = [hour % 24 for hour in range(80)]
    values = [hour for at in range(80) for hour in (hours[at], hours[(at + 5) % 24])]
    assert _ahead(values, 3, ["a", "b"] * 80) == [values[-1] + 1, values[-1] + 2, values[-1] + 3]
    sizes = [size for _ in range(10) for size in (10.0, 20.0)]
    assert _ahead(sizes, 2, ["a", "b"] * 10) == [20.0, 20.0]


def test_columns_that_never_go_on_are_forgotten():
    clock = Clock()
    values = np.random.default_rng(0).normal(size=3000)
    clock.observe([NUMBER], {"x": values}, range(3000), [])
    assert clock.courses["x"].is_lost
    assert len(json.dumps(clock.state())) < 60_000


def test_dates_go_on_by_their_usual_step():
    months = [DAY(2024, 10, 31), DAY(2024, 11, 30), DAY(2024, 12, 31)]
    firsts = [DAY(2024, 11, 1), DAY(2024, 12, 1), DAY(2025, 1, 1)]
    assert dates_ahead(firsts, 2) == [DAY(2025, 2, 1), DAY(2025, 3, 1)]
    later = dates_ahead([DAY(2023, 10, 30), DAY(2023, 11, 30), DAY(2023, 12, 30)], 2)
    assert later is not None
    assert later[1] == DAY(2024, 2, 29)
    assert dates_ahead(months, 1) is None
    weeks = [DAY(2024, 1, 1) + datetime.timedelta(weeks=week) for week in (0, 1, 2, 4, 5, 6)]
    assert dates_ahead(weeks, 1) == [weeks[-1] + datetime.timedelta(weeks=1)]


def test_a_clock_knows_where_several_rows_have_the_same_moment():
    days = [f"2024-01-{1 + row // 2:02d}" for row in range(8)]
    clock = Clock()
    clock.observe([Feature("day", "time", 1, False)], {"day": days}, range(8), [])
    assert clock.repeated("") == ["day"]
    assert clock.ahead("", 2) == {}
    each = Clock()
    each.observe([Feature("day", "time", 1, False)], {"day": days[::2]}, range(4), [])
    assert each.repeated("") == []
