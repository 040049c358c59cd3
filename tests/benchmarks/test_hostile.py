"""Hostile streams: fixed, numerous, and judged by their own baseline."""

import zlib

import numpy as np
from benchmarks.hostile.base import ROWS

from benchmarks import hostile


def test_streams_are_fixed_and_whole() -> None:
    """The same rows for the same seed, at least sixty streams, names that are used once."""
    names = [name for group in hostile.GROUPS.values() for name in group]
    assert len(names) == len(set(names)) >= 60
    for group in hostile.GROUPS.values():
        for name, make in group.items():
            one, other = (make(np.random.default_rng(zlib.crc32(name.encode()))) for _ in range(2))
            assert len(one.targets) == ROWS
            assert {len(column) for column in one.columns.values()} == {ROWS}
            np.testing.assert_array_equal(one.targets, other.targets)


def answered(**figures: float) -> dict:
    target = {"task": "regression", "rows": ROWS, "log_loss": 1.0, "baseline_log_loss": 1.0, **figures}
    return {"rows": {"read": ROWS, "rejected": 0}, "targets": [target]}


def test_a_run_is_judged_by_its_own_baseline() -> None:
    targets = np.ones(ROWS)
    errors = {"mean_absolute_error": 1.1, "baseline_mean_absolute_error": 1.0}
    assert hostile.judged(answered(**errors), targets)["passed"]
    worse = hostile.judged(answered(**{**errors, "mean_absolute_error": 1.2, "log_loss": 1.1}), targets)
    assert (worse["passed"], worse["why"]) == (False, "error, log loss")
    exact = {"mean_absolute_error": 1e-15, "baseline_mean_absolute_error": 0.0}
    assert hostile.judged(answered(**exact), targets)["passed"]
    lost = answered(**errors)
    lost["rows"]["rejected"] = ROWS // 10
    assert hostile.judged(lost, targets)["why"] == f"{ROWS // 10} rows rejected"


def test_reach_is_the_largest_limit_over_the_largest_target(tmp_path) -> None:
    said = tmp_path / "said.csv"
    said.write_text("line,observed,predicted,low_90,high_90\n2,-4,,,\n3,2,1,-9,12\n")
    assert hostile.reach(said) == 3.0
    said.write_text("line,observed,predicted,p(a)\n2,a,a,0.5\n")
    assert hostile.reach(said) == ""
