"""Every member of a table as a member of a larger one: what was learned stays, whatever structure keeps it there."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from natkal.banks.resize import resize
from natkal.banks.scaled import Scaled
from natkal.banks.spec import BankSpec, GroupSpec, MemberSpec
from natkal.models import ravel
from natkal.tables.learner import choose
from natkal.tables.learner.architectures import Inputs, Shape
from natkal.tables.learner.tasks import Task, make_task

pytestmark = pytest.mark.float64
ROWS, FIRST = 60, 3


class Case(NamedTuple):
    """An architecture as groups name it, and the sizes below which its covariance is kept in full."""

    architecture: str
    dtype: str = "float64"
    reach: float | None = None


CASES = {
    "linear": Case("linear"),
    "network": Case("mlp:4", "float32"),
    "two layers": Case("mlp:4,3", "float32"),
    "cells": Case("tiles:8192", reach=4.0),
    "gru": Case("gru:3"),
    "lstm": Case("lstm:2"),
    "rnn": Case("rnn:3"),
    "products": Case("products"),
    "lru": Case("lru:4", "float32"),
    "rtu": Case("rtu:3"),
}
SLOW = ("two layers", "lstm", "rnn")
GROWTH = {"inputs": (2, 0), "outputs": (0, 3), "both": (3, 2)}
"""How many more of each."""


def spec_of(case: Case) -> BankSpec:
    settings = ((3.0, 0.0),) if case.reach is not None else ((3.0, 0.0), (10.0, 1e-2))
    members = tuple(MemberSpec(f"prior {prior}", prior, fading, reach=case.reach) for prior, fading in settings)
    group = GroupSpec(case.architecture, case.dtype, members)
    return BankSpec((group,), one_law=False, selects=False, budget=None, standardize=True, seed=0)


def shape_of(columns: int) -> Shape:
    return Shape(columns, (True,) * columns, past=0, fan_in=FIRST)


def learned(learner: Scaled, task: Task, columns: int, classes: int) -> Any:
    """The state after some rows, of as many classes as are known, and the next row."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(ROWS + 1, columns))
    y = rng.integers(classes, size=ROWS) if classes else inputs[:-1, 0] + 0.1 * rng.normal(size=ROWS)
    targets = np.column_stack([np.asarray(task.to_learner(y.astype(float))), np.ones(ROWS)])
    known = np.full(ROWS + 1, classes, np.int32)

    def run(state: Any) -> Any:
        return jax.lax.scan(lambda own, row: (learner.step(own, *row)[0], None), state, rows)[0]

    rows = (Inputs(inputs[:-1], known[:-1]), targets)
    return jax.jit(run)(jax.jit(learner.init)()), Inputs(inputs[-1], known[-1])


def grown(case: Case, growth: str, classes: int = 3) -> Any:
    """Both learners, the states before and after, and the next row for each of them, without the new columns."""
    inputs, outputs = GROWTH[growth]
    spec = spec_of(case)
    task, wide = make_task("multiclass", classes), make_task("multiclass", classes + outputs)
    small, large = choose.build(spec, shape_of(FIRST), task), choose.build(spec, shape_of(FIRST + inputs), wide)
    state, row = learned(small, task, FIRST, classes)
    moved = jax.jit(lambda own: resize(small, large, own))(state)
    wider = row._replace(features=np.append(row.features, np.full(inputs, np.nan)))
    return small, large, state, moved, row, wider


def probabilities(learner: Scaled, state: Any, row: Inputs, classes: int) -> np.ndarray:
    """Those of the classes that were known, class 0 first; all there are sum to 1."""
    found = np.asarray(jax.jit(learner.predict)(state, row).probabilities)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-6)
    return np.append(found[-1:], found[:-1])[:classes]


@pytest.mark.parametrize("growth", GROWTH)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_what_was_learned_is_kept(name: str, growth: str) -> None:
    """A row without the new columns has the prediction it had; cells that become one are what both were told."""
    case = CASES[name]
    small, large, state, moved, row, wider = grown(case, growth)
    before, after = probabilities(small, state, row, 3), probabilities(large, moved, wider, 3)
    merged = case.reach is not None and GROWTH[growth][1]
    # the law of the target's own past, whose share is 1/1,024, leaves something for the classes that there is room for
    np.testing.assert_allclose(after, before, rtol=0.2 if merged else 1e-4)
    fresh = jax.eval_shape(large.init)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (fresh, moved))
    assert shapes[0] == shapes[1]
    if growth == "both":  # it goes on learning
        step = jax.jit(large.step)
        for _ in range(3):
            moved, info = step(moved, wider, np.array([1.0, 1.0]))
            assert np.isfinite(float(info.log_prob))


@pytest.mark.parametrize("growth", GROWTH)
@pytest.mark.parametrize(("name", "structures"), [("linear", "Dense Kronecker"), ("gru", "Dense Blocks")])
def test_another_structure_keeps_the_mean_and_about_the_variances(
    name: str, structures: str, growth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that outgrows a full covariance: the mean is the same, variances within a factor of 4."""
    from natkal.tables.learner import architectures, recurrent

    for place in (architectures, recurrent):
        monkeypatch.setattr(place, "DENSE_UP_TO", {"linear": 8, "gru": 24}[name])
    monkeypatch.setattr(choose, "build", choose.build.__wrapped__)
    small, large, state, moved, row, wider = grown(CASES[name], growth)
    kinds = [type(one.bank.groups[0].first.curvature).__name__ for one in (small, large)]
    assert " ".join(kinds) == structures
    before, after = probabilities(small, state, row, 3), probabilities(large, moved, wider, 3)
    np.testing.assert_allclose(after, before, atol=0.05)
    own, wide = state.bank.members[0], moved.bank.members[0]
    for member in range(2):
        at = lambda tree, member=member: jax.tree.map(lambda leaf: leaf[member], tree)  # noqa: E731
        params = [jax.tree.map(np.asarray, at(one.params)) for one in (own, wide)]
        pairs = zip(*map(jax.tree.leaves, params), strict=True)
        for old, new in pairs:
            np.testing.assert_array_equal(new[tuple(slice(0, size) for size in old.shape)], old)
        variances = [
            ravel_variances(jax.jit(learner.bank.groups[0].first.covariance)(at(one)), one_params)
            for learner, one, one_params in zip((small, large), (own, wide), params, strict=True)
        ]
        for old, new in zip(*variances, strict=True):
            ratio = new[tuple(slice(0, size) for size in old.shape)] / old
            assert ratio.min() > 0.25
            assert ratio.max() < 4


def ravel_variances(cov: Any, params: Any) -> list[np.ndarray]:
    """The variances of the parameters, leaf by leaf."""
    flat, first, found = np.diag(np.asarray(cov)), 0, []
    assert len(flat) == len(np.asarray(ravel(params)))
    for leaf in jax.tree.leaves(params):
        found.append(flat[first : first + leaf.size].reshape(leaf.shape))
        first += leaf.size
    return found


def test_sensitivities_move_with_their_parameters() -> None:
    """Each column of G is that of its own parameter, wherever it now stands."""
    _, _, state, moved, *_ = grown(CASES["gru"], "both")
    before, after = (one.bank.members[0].carry.sensitivity[0] for one in (state, moved))
    params, wide = (jax.tree.map(lambda leaf: leaf[0], one.bank.members[0].params) for one in (state, moved))
    numbers = [np.arange(np.size(ravel(one))) for one in (params, wide)]
    old, new = numbers[0], []
    first = 0
    for own, leaf in zip(jax.tree.leaves(params), jax.tree.leaves(wide), strict=True):
        own_numbers = numbers[1][first : first + leaf.size].reshape(leaf.shape)
        new.append(own_numbers[tuple(slice(0, size) for size in own.shape)].ravel())
        first += leaf.size
    at = np.concatenate(new)
    np.testing.assert_array_equal(np.asarray(after)[:, at], np.asarray(before)[:, old])
    others = np.setdiff1d(numbers[1], at)
    assert (np.asarray(after)[:, others] == 0).all()


def test_members_are_found_by_their_names() -> None:
    """A bank of fewer members takes their states, and their share of the weight."""
    case = CASES["linear"]
    spec, task = spec_of(case), make_task("multiclass", 3)
    two = choose.build(spec, shape_of(FIRST), task)
    one = choose.build(spec.without("prior 3.0"), shape_of(FIRST + 1), task)
    state, _ = learned(two, task, FIRST, 3)
    moved = jax.jit(lambda own: resize(two, one, own))(state)
    np.testing.assert_allclose(np.exp(np.asarray(moved.bank.log_weights)).sum(), 1, rtol=1e-12)
    np.testing.assert_array_equal(
        np.asarray(moved.bank.members[0].params[0]["weight"])[0, :FIRST],
        np.asarray(state.bank.members[0].params[0]["weight"])[1],
    )


def test_a_column_that_comes_among_the_first_rows_is_missing_in_those_before() -> None:
    """Not 0, which would be a value like any other."""
    case, task = CASES["linear"], make_task("regression")
    small, large = (choose.build(spec_of(case), shape_of(columns), task) for columns in (FIRST, FIRST + 1))
    state = jax.jit(small.init)()
    for number in range(5):
        state, _ = jax.jit(small.step)(state, Inputs(np.full(FIRST, float(number)), np.int32(0)), np.array([1.0, 1.0]))
    moved = jax.jit(lambda own: resize(small, large, own))(state)
    kept = np.asarray(moved.first_inputs.features)
    np.testing.assert_array_equal(kept[:5, :FIRST], np.repeat(np.arange(5.0)[:, None], FIRST, axis=1))
    assert np.isnan(kept[:5, FIRST]).all()


def test_a_class_that_comes_late_has_the_probability_that_the_rows_before_leave_it() -> None:
    """-log n is added to its log-odds; the first classes have nothing added, and a model that has no rows neither."""
    task = make_task("multiclass", 4)
    learner = choose.build(spec_of(CASES["linear"]), shape_of(FIRST), task)
    state, row = learned(learner, task, FIRST, 2)
    found = np.asarray(jax.jit(learner.predict)(state, row._replace(known=np.int32(3))).probabilities)
    assert 0.2 / ROWS < found[1] < 5 / ROWS
    assert found[2] < 1e-4  # the law of the target's own past leaves something for the classes there is room for
    late = jax.jit(learner.step)(state, row._replace(known=np.int32(3)), np.array([1.0, 1.0]))[0].late
    np.testing.assert_allclose(np.asarray(late.offsets), [0, -np.log(ROWS), -1e9], rtol=1e-12)
    started = jax.jit(learner.step)(learner.init(), row._replace(known=np.int32(3)), np.array([1.0, 1.0]))[0].late
    np.testing.assert_array_equal(np.asarray(started.offsets), [0, 0, -1e9])
