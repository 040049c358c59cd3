"""A prior renewed a few directions at a time: the error is the one the README states, never more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.curvature import Prior, Response

P, FADING, WEIGHT = 12, 0.01, 1.0


@pytest.mark.parametrize("directions", [1, 3, 5, 12])
def test_unexcited_variance_stays_within_the_stated_bound(directions: int) -> None:
    curvature = nk.dense(prior_directions=directions)
    ones = jnp.ones(P)
    state = curvature.init(Prior(cov=ones, kept=ones, layout=(("w", (P,)),)))
    rows, keep, restore = jnp.zeros((1, P)), jnp.asarray(1 - FADING), jnp.asarray(FADING * WEIGHT)
    nothing = Response(jnp.zeros((1, 1)), jnp.zeros(1))
    largest = 0.0
    forget = jax.jit(
        lambda state: curvature.update(state, rows, lambda gram: nothing, keep, restore, jnp.zeros(P)).state
    )
    for _ in range(200):
        state = forget(state)
        largest = max(largest, float(jnp.max(jnp.diag(curvature.to_dense(state)))))
    turn = int(np.ceil(P / directions))
    assert largest <= 1 / (1 - FADING) ** turn * (1 + 1e-5)


@pytest.mark.float64
@pytest.mark.parametrize("directions", [1, 5])
def test_the_missing_precision_is_exactly_what_is_owed(directions: int) -> None:
    rng = np.random.default_rng(0)
    curvature = nk.dense(prior_directions=directions)
    mixing = rng.normal(size=(P, P))
    prior_cov = mixing @ mixing.T / P + np.eye(P)
    flat = jnp.asarray(prior_cov)
    state = curvature.init(Prior(cov=flat, kept=flat, layout=(("w", (P,)),)))
    prior_precision = np.linalg.inv(prior_cov)
    exact = prior_precision
    keep = 0.97
    restore = WEIGHT * (1 - keep)
    observed = Response(jnp.eye(2), jnp.zeros(2))
    observe = jax.jit(
        lambda state, rows: (
            curvature.update(
                state, rows, lambda gram: observed, jnp.asarray(keep), jnp.asarray(restore), jnp.zeros(P)
            ).state
        )
    )
    for _ in range(30):
        rows = rng.normal(size=(2, P))
        state = observe(state, jnp.asarray(rows))
        exact = keep * exact + restore * prior_precision + rows.T @ rows
    missing = state.prior.root.T @ jnp.diag(state.prior.owed) @ state.prior.root
    stored = np.linalg.inv(curvature.to_dense(state))
    np.testing.assert_allclose(stored + missing, exact, rtol=1e-9, atol=1e-9)
    assert float(state.prior.owed.max()) <= WEIGHT * (1 - 0.97 ** np.ceil(P / directions)) + 1e-12
