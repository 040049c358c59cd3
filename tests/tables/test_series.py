"""The recurrent member of the mixture: where it is, and that a series may grow."""

import dataclasses

import jax
import numpy as np
import pytest

from natkal.banks.resize import resize
from natkal.settings.options import make_options
from natkal.tables.learner.architectures import Shape
from natkal.tables.learner.choose import build, choose
from natkal.tables.learner.tasks import make_task
from natkal.tables.table import TableLearner, TargetShape

SERIES = Shape(columns=7, scaled=(True,) * 7, past=7, fan_in=8, naive=(1.0,) + (0.0,) * 6, series=True)


def recurrent(shape: Shape, task: str = "regression", keyed: bool = False, size: int = 0, **options: str) -> int:
    """How many recurrent members this learner has."""
    spec = choose(make_options(**options), shape, make_task(task, 2 * (task == "binary")), keyed, size)
    return sum(name.startswith("gru") for name in spec.member_names)


def test_only_series_of_numbers_have_a_recurrent_member() -> None:
    """Classes, models for each key, and small budgets or memories do not pay for it."""
    assert recurrent(SERIES) == 3
    assert recurrent(SERIES, "binary") == 0
    assert recurrent(SERIES, keyed=True) == 0
    assert recurrent(SERIES, budget="fast") == 0
    assert recurrent(SERIES, model="linear") == 0
    assert recurrent(SERIES, size=4) == 0


def test_a_series_that_gains_a_column_keeps_its_members() -> None:
    """The larger state has the structure and the shapes of the larger learner's own."""
    dated = dataclasses.replace(SERIES, columns=13, scaled=(True,) * 7 + (False,) * 6, fan_in=13)
    wider = dataclasses.replace(dated, columns=15, scaled=(*dated.scaled, True, True))
    task = make_task("regression", 0)
    spec = choose(make_options(), dated, task)
    small, large = (build(spec, shape, task) for shape in (dated, wider))
    with jax.enable_x64(True):
        moved = jax.eval_shape(lambda: resize(small, large, small.init()))
        fresh = jax.eval_shape(large.init)
    assert jax.tree.map(np.shape, moved) == jax.tree.map(np.shape, fresh)


CASES = [([], True, True), ([], False, False), ([True], True, False)]


@pytest.mark.parametrize(("scaled", "in_order", "expected"), CASES)
def test_a_series_stays_one_in_its_checkpoint(scaled: list[bool], in_order: bool, expected: bool) -> None:
    """Whatever columns come later."""
    options = make_options(model="linear")
    learner = TableLearner(options, scaled, [TargetShape("regression")], limits=False, in_order=in_order)
    assert learner.series is expected
    header = {**learner.header(), "scaled": [*scaled, True], "room": len(scaled) + 1}
    assert TableLearner.from_header(options, header, keyed=False, limits=False).series is expected
