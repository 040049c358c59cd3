"""Keys that share a prior: better than each alone, and the same wherever blocks end."""

import itertools

import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.settings.options import Options
from natkal.storage.parts import Stored
from natkal.tables.engine.pooled_table import PooledTable, next_pooling
from natkal.tables.table import TableLearner, TargetShape

pytestmark = pytest.mark.float64
FEATURES, OPTIONS = 3, Options(learner="single", model="linear", past="none")


def panel(rows: int, keys: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(0)
    weights = np.array([2.0, -1.0, 0.5]) + 0.3 * rng.normal(size=(keys, FEATURES))
    ids = rng.integers(0, keys, rows)
    inputs = 5.0 + 2.0 * rng.normal(size=(rows, FEATURES))
    targets = np.sum(inputs * weights[ids], axis=1) + rng.normal(size=rows)
    return inputs, targets[:, None], [f"key {own}" for own in ids]


def losses(learner: TableLearner, data: tuple, edges: list[int]) -> np.ndarray:
    found = []
    for first, last in itertools.pairwise(edges):
        inputs, targets, keys = (part[first:last] for part in data)
        rows = learner.rows(inputs, targets, keys=keys)
        found.append(-learner.learn(rows, keys=keys).wait().targets[0].log_prob)
    return np.concatenate(found)


def started(data: tuple) -> PooledTable:
    learner = PooledTable(OPTIONS, [True] * FEATURES, [TargetShape("regression")], keyed=True, limits=False)
    learner.know_first_rows(*(part[:100] for part in data))
    return learner


def test_a_population_helps_and_blocks_do_not_matter() -> None:
    data, rows = panel(400, 30), 400
    alone = TableLearner(OPTIONS, [True] * FEATURES, [TargetShape("regression")], keyed=True, limits=False)
    separate = losses(alone, data, [0, rows])
    whole = started(data)
    together = losses(whole, data, [0, rows])
    assert together[100:].mean() < separate[100:].mean() - 0.3
    first = started(data)
    before = losses(first, data, [0, 1, 63, 64, 150])
    second = PooledTable.from_header(OPTIONS, first.header(), keyed=True, limits=False)
    arrays = first.arrays()
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == second.template()
    second.restore(Stored(first.header(), arrays))
    after = losses(second, data, [150, 151, 400])
    np.testing.assert_array_equal(np.concatenate([before, after]), together)
    new = whole.predict(whole.rows(data[0][:5], keys=["new"] * 5), keys=["new"] * 5)
    truth = data[0][:5] @ np.array([2.0, -1.0, 0.5])
    assert np.abs(new.targets[0].value - truth).max() < 4 * 0.3 * np.abs(data[0][:5]).max()


def test_the_population_is_learned_at_fixed_numbers_of_rows() -> None:
    found, at = [], 0
    while at < 1000:
        at = next_pooling(at)
        found.append(at)
    assert found[0] == 64
    assert all(later > earlier for earlier, later in itertools.pairwise(found))


def test_networks_are_not_pooled() -> None:
    options = Options(learner="single", model="mlp:4", past="none")
    learner = PooledTable(options, [True] * FEATURES, [TargetShape("regression")], keyed=True, limits=False)
    with pytest.raises(StreamError, match="too many to pool"):
        learner.know_first_rows(*panel(20, 3))
