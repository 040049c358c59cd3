"""What every curvature must do, one structure at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.curvature import Prior, Response
from tests.curvature.registry import Entry, Observed, entries

P, M, R, STEPS = 7, 3, 2, 12


def random_prior(rng: np.random.Generator, kind: str) -> np.ndarray:
    if kind == "variances":
        return rng.uniform(0.5, 2.0, P)
    mixing = rng.normal(size=(P, P))
    return mixing @ mixing.T / P + 0.5 * np.eye(P)


@pytest.mark.parametrize("prior_kind", ["variances", "matrix"])
@pytest.mark.parametrize("kept", [False, True], ids=["forgotten", "kept"])
@pytest.mark.parametrize("entry", entries())
def test_update_equals_its_definition(entry: Entry, kept: bool, prior_kind: str, rtol: float) -> None:
    rng = np.random.default_rng(0)
    curvature = entry.build(P)
    prior_cov = random_prior(rng, prior_kind)
    full_prior = np.diag(prior_cov) if prior_cov.ndim == 1 else prior_cov
    layout = (("w", (P,)),)
    flat = jnp.asarray(prior_cov)
    state = curvature.init(Prior(cov=flat, kept=flat if kept else None, layout=layout))
    update = jax.jit(
        lambda state, rows, factor, push, keep, restore, offset: curvature.update(
            state, rows, lambda gram: Response(factor, push + 0 * gram[0]), keep, restore, offset
        )
    )
    cov = full_prior
    np.testing.assert_allclose(curvature.to_dense(state), cov, rtol=rtol)
    for _ in range(STEPS):
        rows, factor = rng.normal(size=(M, P)), rng.normal(size=(M, R))
        push, offset = rng.normal(size=M), rng.normal(size=P)
        keep, restore = rng.uniform(0.7, 1.0), rng.uniform(0, 0.5) if kept else 0.0
        asked = (restore, offset) if kept else (None, None)
        result = update(state, rows, factor, push, keep, *asked)
        expected_cov, expected_step = entry.reference(
            Observed(cov, rows, factor, push, keep, restore, full_prior, offset)
        )
        scale = np.abs(cov).max()
        np.testing.assert_allclose(result.gram, rows @ cov @ rows.T, rtol=rtol, atol=100 * rtol * scale)
        np.testing.assert_allclose(result.step, expected_step, rtol=rtol, atol=100 * rtol)
        np.testing.assert_allclose(curvature.to_dense(result.state), expected_cov, rtol=rtol, atol=10 * rtol * scale)
        state, cov = result.state, expected_cov
    vector, rows = rng.normal(size=P), rng.normal(size=(2, P))
    np.testing.assert_allclose(curvature.solve(state, jnp.asarray(vector)), cov @ vector, rtol=rtol, atol=100 * rtol)
    np.testing.assert_allclose(
        curvature.quadratic(state, jnp.asarray(rows)), rows @ cov @ rows.T, rtol=rtol, atol=100 * rtol
    )


@pytest.mark.parametrize("entry", entries())
def test_respond_sees_the_gram_matrix_after_forgetting(entry: Entry, rtol: float) -> None:
    rng = np.random.default_rng(1)
    curvature = entry.build(P)
    state = curvature.init(Prior(cov=jnp.ones(P), kept=None, layout=(("w", (P,)),)))
    rows, keep = jnp.asarray(rng.normal(size=(M, P))), jnp.asarray(0.5)
    seen = []

    def respond(gram):
        seen.append(gram)
        return Response(jnp.zeros((M, 1), gram.dtype), jnp.zeros(M, gram.dtype))

    result = curvature.update(state, rows, respond, keep)
    np.testing.assert_allclose(seen[0], rows @ rows.T / 0.5, rtol=rtol)
    np.testing.assert_allclose(result.step, np.zeros(P), atol=rtol)
    np.testing.assert_allclose(curvature.to_dense(result.state), 2 * np.eye(P), rtol=rtol, atol=rtol)
