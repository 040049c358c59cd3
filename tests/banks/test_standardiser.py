"""Units of targets: those that follow the rows, and those of rewards, which stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.banks.units.scales import FIRST_ROWS
from natkal.banks.units.standardise import ScaledState, Standardiser


def units_of(fixed: bool) -> Standardiser:
    return Standardiser(np.zeros(2), nk.families.Gaussian(1.0), True, 1.0, fixed_units=fixed)


def told(units: Standardiser, targets: np.ndarray) -> tuple[list[ScaledState], np.ndarray]:
    """The state after each row, and the targets as the bank sees them."""
    turn = jax.jit(units.standardise)
    inputs = np.random.default_rng(1).normal(size=(len(targets), 2))
    state, states, seen = units.start(jnp.zeros(()).dtype), [], []
    for row, target in zip(inputs, targets, strict=True):
        state, now = turn(state, jnp.asarray(row), jnp.asarray(target))
        states.append(state)
        seen.append(float(now.target))
    return states, np.array(seen)


@pytest.mark.float64
def test_fixed_units_are_those_of_the_first_rows() -> None:
    """Rewards that rise, some of them far outside: all are seen as (y - a) / b with the same a and b."""
    rng = np.random.default_rng(0)
    first = 1 + 0.1 * rng.normal(size=FIRST_ROWS)
    first[[3, 7, 11]] = 50.0  # wild values among the first rows must not keep later ones from being learned
    later = np.concatenate([1 + 0.1 * rng.normal(size=8), np.full(6, 50.0), [1e6, 2.0], 30 + rng.normal(size=8)])
    states, seen = told(units_of(True), np.concatenate([first, later]))
    location, scale, *_ = units_of(True).target_units(states[FIRST_ROWS - 1])
    assert np.all(np.isnan(seen[:FIRST_ROWS]))
    np.testing.assert_allclose(seen[FIRST_ROWS:], (later - float(location)) / float(scale), rtol=1e-12)
    at_the_end = units_of(True).target_units(states[-1])
    assert (float(at_the_end.location), float(at_the_end.scale)) == (float(location), float(scale))


@pytest.mark.float64
def test_other_units_follow() -> None:
    """The same rows without `fixed_units`: the units change, and the wildest value is seen as a logarithm."""
    rng = np.random.default_rng(0)
    targets = np.concatenate([1 + 0.1 * rng.normal(size=FIRST_ROWS), 3 + rng.normal(size=30), [1e6]])
    states, seen = told(units_of(False), targets)
    early, late = (units_of(False).target_units(state) for state in (states[FIRST_ROWS - 1], states[-2]))
    assert late.scale > 2 * early.scale
    assert not abs(seen[-1]) > 100
