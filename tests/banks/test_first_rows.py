"""Predictions before the scale of a target is known."""

import jax.numpy as jnp
import numpy as np
import pytest

from natkal.banks.units.first_rows import LAST_ODDS, expected_next


def slow(values: np.ndarray, centre: float) -> float:
    """The same one value at a time."""
    seen = [value for value in values if np.isfinite(value)]
    errors = [(seen[t] - np.mean(seen[:t]), seen[t] - seen[t - 1]) for t in range(2, len(seen))]
    by_mean, by_last = (sum(error[which] ** 2 for error in errors) for which in (0, 1))
    odds = LAST_ODDS * (by_mean / by_last) ** (len(errors) / 2) if errors else LAST_ODDS
    return centre + odds / (1 + odds) * (seen[-1] - centre)


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_the_last_value_and_the_centre_are_weighed_by_their_evidence(count: int) -> None:
    """Against a loop over the values, with some that are missing, for two targets at once."""
    rng = np.random.default_rng(count)
    values = np.full((16, 2), np.nan)
    values[:count, 0], values[:count, 1] = rng.normal(size=count), 1e3 * np.cumsum(rng.normal(size=count))
    values[3, 0] = np.nan
    centre = np.nanmean(values, axis=0)
    found = expected_next(jnp.asarray(values), jnp.asarray(centre))
    np.testing.assert_allclose(found, [slow(values[:, at], centre[at]) for at in (0, 1)], rtol=1e-8)


def test_nothing_seen_gives_the_centre() -> None:
    """Also where values are too large to be squared."""
    assert float(expected_next(jnp.full(16, jnp.nan), jnp.zeros(()))) == 0.0
    large = jnp.where(jnp.arange(16) < 4, 1e200, jnp.nan)
    assert float(expected_next(large, jnp.asarray(1e200))) == pytest.approx(1e200)
