"""A filter with cells: its step against the filter on the whole table, its kernel, its growth."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.banks.tiles import CELLS, COUNTED, PLAIN, Tiled, random_grids, with_cells

GRIDS, PLACES, INPUTS = 8, 4, 2


def apply(params, inputs):
    return inputs @ params[PLAIN] + jnp.sum(params[CELLS], axis=0)


def tiled(fading: float = 0.0, inputs: int = INPUTS) -> Tiled:
    params = {CELLS: jnp.zeros((GRIDS, 1)), PLAIN: jnp.zeros((inputs, 1))}
    prior = {CELLS: 0.5, PLAIN: 2.0}
    inner = nk.online(
        nk.static_model(apply, params, nk.families.Gaussian(1.0)),
        prior_cov=jax.tree.map(lambda leaf, variance: jnp.full(leaf.shape, variance), params, prior),
        curvature=with_cells(nk.dense()),
        rates=nk.fading(fading),
        step_control=nk.step_control(cap=None),
    )
    dtype = jnp.zeros(()).dtype
    return Tiled(inner, random_grids(0, GRIDS, inputs), lambda row: row, 1.5, PLACES, dtype)


@pytest.mark.parametrize("fading", [0.0, 0.1])
def test_step_is_that_of_the_whole_table(fading: float, rtol: float) -> None:
    """The decoupled filter on all M T cells, in NumPy; what a row says of its cells counts COUNTED times."""
    learner, rng = tiled(fading), np.random.default_rng(0)
    state, step = learner.init(), jax.jit(learner.step)
    weights, variances = np.zeros((GRIDS, PLACES)), np.full((GRIDS, PLACES), 0.5)
    plain, cov, each = np.zeros(INPUTS), 2.0 * np.eye(INPUTS), np.arange(GRIDS)
    for _ in range(20):
        row, target = rng.normal(size=INPUTS), rng.normal()
        places = np.asarray(learner.grids.places(jnp.asarray(row), 1.5, PLACES))
        said = learner.predict(state, row)
        state, info = step(state, row, np.array([target]))
        mean = plain @ row + weights[each, places].sum()
        spread = row @ cov @ row + variances[each, places].sum()
        np.testing.assert_allclose([said.mean[0], info.prediction.mean[0]], mean, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(said.cov[0, 0], 1 + spread, rtol=10 * rtol)
        keep = 1 - fading
        cov, own = cov / keep, variances[each, places] / keep
        total = 1 + row @ cov @ row + own.sum()
        error, around_cells = target - mean, 1 + row @ cov @ row
        plain = plain + cov @ row * error / total
        weights[each, places] += own * error / total
        cov = cov - np.outer(cov @ row, cov @ row) / total
        variances[each, places] = 1 / (1 / own + COUNTED / around_cells)
    np.testing.assert_allclose(state.weights[..., 0], weights, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(state.variances[..., 0], variances, rtol=rtol)


def test_cells_are_shared_as_often_as_the_laplace_kernel_says() -> None:
    rate, many = 0.7, 4000
    grids, rng = random_grids(1, many, 3), np.random.default_rng(1)
    for _ in range(5):
        one, other = rng.normal(size=(2, 3))
        places = [np.asarray(grids.places(jnp.asarray(row), rate, 1 << 20)) for row in (one, other)]
        expected = np.exp(-rate * np.abs(one - other).sum())
        error = np.sqrt(expected * (1 - expected) / many)
        assert abs((places[0] == places[1]).mean() - expected) < 4 * error


def test_an_input_that_is_zero_changes_no_cell() -> None:
    """A column that comes later: what was learned without it stays where it was."""
    row = np.random.default_rng(2).normal(size=2)
    few = random_grids(0, GRIDS, 2).places(jnp.asarray(row), 1.5, 1 << 10)
    more = random_grids(0, GRIDS, 3).places(jnp.asarray([*row, 0.0]), 1.5, 1 << 10)
    np.testing.assert_array_equal(few, more)
    small, large = tiled(), tiled(inputs=3)
    state, _ = small.step(small.init(), row, np.array([1.0]))
    grown = small.embedded(state, large, large.init())
    before, after = small.predict(state, row), large.predict(grown, np.array([*row, 0.0]))
    np.testing.assert_allclose([after.mean, after.cov[0]], [before.mean, before.cov[0]], rtol=1e-5)


def test_the_best_member_of_a_bank_tells_what_a_report_asks() -> None:
    """Its observations, its forgetting, its size, its covariance and its plain parameters."""
    bank = nk.bank([tiled(0.0), tiled(0.01)])
    state, _ = nk.run(bank, bank.init(), np.ones((5, INPUTS)), np.ones(5))
    found: Any = bank.best(state)
    best, known = found
    assert int(known.steps) == 5
    assert any(float(best.rates.amount) == pytest.approx(amount) for amount in (0.0, 0.01))
    assert best.size == GRIDS * PLACES + INPUTS == len(best.covariance(known))
    assert known.params.shape == (INPUTS, 1)
