"""The models of a table's keys on workers: the same as in one process to the last bit, also where workers die."""

import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.keyed.workers import Here
from natkal.settings.options import Options
from natkal.tables.engine.pooled_table import PooledTable
from natkal.tables.engine.ray_table import check_ray
from natkal.tables.engine.spread_table import SpreadTable, TableShard
from natkal.tables.table import TableLearner, TargetShape

pytestmark = pytest.mark.float64
FEATURES, ROWS = 2, 96
OPTIONS = Options(learner="single", model="linear", past="none")


def data() -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(ROWS, FEATURES)),
        rng.integers(0, 2, (ROWS, 1)) * 1.0,
        [f"k{i}" for i in rng.integers(0, 5, ROWS)],
    )


def learned(pool: bool, workers: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    inputs, targets, keys = data()
    make = PooledTable if pool else TableLearner
    learner = make(OPTIONS, [True] * FEATURES, [TargetShape("binary", 2, 2)], keyed=True, limits=False)
    if isinstance(learner, PooledTable):
        learner.know_first_rows(inputs, targets, keys)
    here = Here(lambda worker: TableShard())
    if workers:
        learner.elsewhere = SpreadTable(learner, here, 2)
    found = []
    for first in range(0, ROWS, 32):
        part = slice(first, first + 32)
        rows = learner.rows(inputs[part], targets[part], keys=keys[part])
        pending = learner.learn(rows, keys=keys[part])
        if first == 32:
            here.kill(0)
            here.kill(1)
        found.append(pending.wait().targets[0].log_prob)
    here.kill(0)
    return np.concatenate(found), learner.arrays()


@pytest.mark.parametrize("pool", [False, True])
def test_workers_learn_the_same_bits(pool: bool) -> None:
    (alone, states), (spread, collected) = learned(pool, False), learned(pool, True)
    np.testing.assert_array_equal(spread, alone)
    assert states.keys() == collected.keys()
    for name, array in states.items():
        np.testing.assert_array_equal(collected[name], array, err_msg=name)


def test_what_cannot_be_spread_is_refused_in_a_sentence() -> None:
    with pytest.raises(StreamError, match="name the column with --key"):
        check_ray("local", None, 0)
    with pytest.raises(StreamError, match="label-delay"):
        check_ray("local", "user", 3)
