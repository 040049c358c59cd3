"""Recurrent members of a table: which tables have them, what they are for, and what they survive."""

import dataclasses

import jax
import numpy as np
import pytest

import natkal as nk
from natkal.curvature.base import Prior
from natkal.settings.options import make_options
from natkal.tables.learner.architectures import Shape
from natkal.tables.learner.choose import MEMORIES, choose
from natkal.tables.learner.recurrent import stretches
from natkal.tables.learner.tasks import make_task
from natkal.tables.table import TableLearner, TargetShape

TABLE = Shape(columns=9, scaled=(True,) * 9, past=5, fan_in=9)
ROWS = 1500


def kinds(shape: Shape = TABLE, in_order: bool = True, keyed: bool = False, **options: object) -> list[str]:
    """The recurrent groups of a table of two classes."""
    spec = choose(make_options(**options), shape, make_task("binary", 2), keyed, in_order=in_order)
    named = [group.architecture for group in spec.groups]
    return [name for name in named if name.partition(":")[0] in ("gru", "lru", "rtu")]


def test_tables_in_order_have_recurrent_members_that_do_not_see_targets() -> None:
    """Not where rows have no order, labels come late, each key has a model, or there are too many inputs."""
    assert kinds() == list(MEMORIES)
    assert kinds(in_order=False) == kinds(forget=False) == kinds(keyed=True) == kinds(budget="fast") == []
    assert kinds(dataclasses.replace(TABLE, columns=65, scaled=(True,) * 65)) == []
    # a covariance for each unit grows with the square of the inputs: it may cost what the largest networks do
    assert kinds(dataclasses.replace(TABLE, columns=33, scaled=(True,) * 33, fan_in=33)) == ["gru:16"]
    members = [m for group in choose(make_options(), TABLE, make_task("binary", 2)).groups[-2:] for m in group.members]
    assert {member.inputs for member in members} == {"without past"}


@pytest.mark.parametrize(("model", "delay"), [("lru:16", 8), ("rtu:16", 8), ("gru:8", 1)])
def test_an_input_of_some_rows_ago_is_remembered(model: str, delay: int) -> None:
    """The label says the sign of an input so many rows earlier, which no row shows."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(ROWS, 2))
    y = np.append(np.zeros(delay), inputs[:-delay, 0] > 0).astype(float)
    options = make_options(model=model, past="none", prior_scale=10.0, fading=1e-4)
    learner = TableLearner(options, [True, True], [TargetShape("binary", 2, 2)], limits=False)
    told = learner.learn(learner.rows(inputs, y[:, None])).wait().targets[0]
    late = told.log_prob[-300:]
    assert -late.mean() < 0.45


def test_blocks_stay_within_their_prior() -> None:
    """Nothing is observed for long, and forgetting widens no variance beyond twice that of the prior."""
    curvature = nk.blocks(within_prior=True)
    layout = (("['bias']", (2,)), ("['weight']", (3, 2)))
    prior = Prior(cov=np.linspace(0.1, 5.0, 8), kept=None, layout=layout)
    state, free = curvature.init(prior), nk.blocks().init(prior)
    keep = np.float64(0.9)
    for _ in range(200):
        state, free = curvature.fade(state, keep, None), nk.blocks().fade(free, keep, None)
    variances = np.diag(curvature.to_dense(state))
    assert (variances <= 2 / 0.9 * prior.cov).all()
    assert (variances >= 0.99 * prior.cov).all()
    assert (np.diag(nk.blocks().to_dense(free)) > 1e3 * prior.cov).any()


def test_an_input_that_wakes_up_does_not_throw_a_fading_network_off() -> None:
    """A column that is constant for long: what forgetting makes of its weights would be a step without a prior."""
    rng = np.random.default_rng(1)
    rows = 6000
    inputs = rng.normal(size=(rows, 3))
    inputs[:5000, 2] = 1e-4 * rng.normal(size=5000)
    y = (inputs[:, 0] + 0.3 * rng.normal(size=rows) > 0).astype(float)
    options = make_options(model="lru:16", past="none", prior_scale=10.0, fading=3e-3)
    learner = TableLearner(options, [True] * 3, [TargetShape("binary", 2, 2)], limits=False)
    told = learner.learn(learner.rows(inputs, y[:, None])).wait().targets[0]
    assert -told.log_prob[5000:].mean() < 1.0


def test_stretches() -> None:
    """Runs of consecutive places, in their order."""
    assert list(stretches((0, 1, 2, 5, 7, 8))) == [(0, 3), (5, 6), (7, 9)]
    assert list(stretches((3,))) == [(3, 4)]
    assert jax.tree.leaves(list(stretches(()))) == []
