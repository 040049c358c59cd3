"""Rows a few at a time, in blocks of any length, give what the loop gives for all of them, bit for bit."""

import jax
import numpy as np
import pytest

from natkal.settings.options import Options
from natkal.tables.engine.live_table import FEW_ROWS, LiveTable
from natkal.tables.table import TableLearner, TargetShape


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_blocks_of_any_length(keyed):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(120, 2))
    targets = (numbers[:, :1] + rng.normal(size=(120, 1)) > 0).astype(float)
    keys = [f"key {number}" for number in rng.integers(0, 20, 120)] if keyed else []

    def make() -> TableLearner:
        options = Options(learner="single", model="linear", past="1")
        return TableLearner(options, [True, True], [TargetShape("binary", 2, 2)], keyed=keyed)

    whole, live = make(), LiveTable(make())
    expected = whole.learn(whole.rows(numbers, targets, keys=keys), keys=keys).wait()
    told, first = [], 0
    for length in (1, 2, FEW_ROWS, FEW_ROWS + 1, 1, 83):
        part = slice(first, first + length)
        rows = live.learner.rows(numbers[part], targets[part], keys=keys[part])
        told.append(live.learn(rows, keys=keys[part]).wait())
        first += length
    found = jax.tree.map(lambda *leaves: np.concatenate(leaves), *told)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert left.tobytes() == right.tobytes()
    live.store()
    left, right = live.learner.arrays(), whole.arrays()
    assert {name: value.tobytes() for name, value in left.items()} == {
        name: value.tobytes() for name, value in right.items()
    }
    own = [*keys[:2], "never seen"] if keyed else []
    asked = live.reader().predict(numbers[:3], own)
    same = whole.predict(whole.rows(numbers[:3], keys=own), keys=own)
    np.testing.assert_allclose(asked.targets[0].probabilities, same.targets[0].probabilities, rtol=1e-12)
