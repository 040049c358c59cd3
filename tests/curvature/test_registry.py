"""What every curvature must do, one structure at a time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.curvature import Prior, Response
from natkal.models import FactoredRows, Outer
from tests.conftest import FLOAT64
from tests.curvature.registry import LAYOUT, REGISTRY, Entry, Observed, P, entries

M, R, STEPS = 3, 2, 12
each_entry = pytest.mark.parametrize("entry", entries())


def random_prior(rng: np.random.Generator, kind: str) -> np.ndarray:
    if kind == "variances":
        return rng.uniform(0.5, 2.0, P)
    mixing = rng.normal(size=(P, P))
    return mixing @ mixing.T / P + 0.5 * np.eye(P)


def random_rows(rng: np.random.Generator, *, outer_products: bool) -> np.ndarray:
    """Rows as they come: any, or outer products in each layer as a dense layer gives for one observation."""
    rows = rng.normal(size=(M, P))
    if outer_products:
        inputs, deltas = rng.normal(size=4), rng.normal(size=(M, 2))
        rows[:, :2] = inputs[3] * deltas
        rows[:, 2:8] = np.einsum("i,mj->mij", inputs[:3], deltas).reshape(M, 6)
    return rows


@pytest.mark.parametrize(
    ("prior_kind", "kept"),
    [
        pytest.param("variances", False, marks=pytest.mark.slow),
        pytest.param("variances", True, marks=pytest.mark.slow),
        ("matrix", True),
    ],
)
@each_entry
def test_update_equals_its_definition(entry: Entry, kept: bool, prior_kind: str, rtol: float) -> None:
    rng = np.random.default_rng(0)
    curvature = entry.build()
    prior_cov = random_prior(rng, prior_kind)
    if (
        entry.name.startswith("mixed") and prior_kind == "matrix"
    ):  # parts are independent a priori: each takes its own block
        prior_cov[:8, 8:], prior_cov[8:, :8] = 0, 0
    flat = jnp.asarray(prior_cov)
    state = jax.jit(lambda: curvature.init(Prior(cov=flat, kept=flat if kept else None, layout=LAYOUT)))()
    to_dense = jax.jit(curvature.to_dense)
    reference = entry.reference(np.diag(prior_cov) if prior_cov.ndim == 1 else prior_cov)
    update = jax.jit(
        lambda state, rows, factor, push, keep, restore, offset: curvature.update(
            state, rows, lambda gram: Response(factor, push + 0 * gram[0]), keep, restore, offset
        )
    )
    close = {"rtol": rtol, "atol": rtol if FLOAT64 else 100 * rtol}
    np.testing.assert_allclose(to_dense(state), reference.cov, **close)
    for step in range(STEPS):
        rows, factor = random_rows(rng, outer_products=step % 3 > 0), rng.normal(size=(M, R))
        push, offset = rng.normal(size=M), rng.normal(size=P)
        keep, restore = rng.uniform(0.7, 1.0), rng.uniform(0, 0.5) if kept else 0.0
        result = update(state, rows, factor, push, keep, *((restore, offset) if kept else (None, None)))
        np.testing.assert_allclose(result.gram, rows @ reference.cov @ rows.T, **close)
        expected_step = reference.update(Observed(rows, factor, push, keep, restore, offset))
        np.testing.assert_allclose(result.step, expected_step, **close)
        np.testing.assert_allclose(to_dense(result.state), reference.cov, **close)
        state = result.state
    vector, rows = jnp.asarray(rng.normal(size=P)), jnp.asarray(rng.normal(size=(2, P)))
    solved, squared = jax.jit(lambda state: (curvature.solve(state, vector), curvature.quadratic(state, rows)))(state)
    np.testing.assert_allclose(solved, reference.cov @ vector, **close)
    np.testing.assert_allclose(squared, rows @ reference.cov @ rows.T, **close)


@pytest.mark.parametrize("entry", [case for case in entries() if getattr(case.values[0].build(), "factored", False)])
def test_rows_that_come_factored_give_the_same_update(entry: Entry, rtol: float) -> None:
    """The first layer as an affine one, the second with a bias of its own: against the definition, rows written out."""
    rng = np.random.default_rng(4)
    curvature = entry.build()
    prior_cov = random_prior(rng, "variances")
    state = curvature.init(Prior(cov=jnp.asarray(prior_cov), kept=None, layout=LAYOUT))
    reference = entry.reference(np.diag(prior_cov))
    update = jax.jit(
        lambda state, rows, factor, push: curvature.update(
            state, rows, lambda gram: Response(factor, push + 0 * gram[0]), jnp.asarray(0.9)
        )
    )
    close = {"rtol": rtol, "atol": rtol if FLOAT64 else 100 * rtol}
    for _ in range(3):
        deltas = [rng.normal(size=(M, units)) for units in (2, 1)]
        weights = [
            Outer(inputs=jnp.asarray(rng.normal(size=own)), deltas=jnp.asarray(delta), axis=1)
            for own, delta in zip((3, 2), deltas, strict=True)
        ]
        rows = FactoredRows(
            leaves=(weights[0].deltas, weights[0], jnp.asarray(rng.normal(size=(M, 1))), weights[1]), biases=((1, 0),)
        )
        factor, push = rng.normal(size=(M, R)), rng.normal(size=M)
        result = update(state, rows, factor, push)
        written_out = np.asarray(rows.dense())
        np.testing.assert_allclose(result.gram, written_out @ reference.cov @ written_out.T, **close)
        expected_step = reference.update(Observed(written_out, factor, push, 0.9, 0.0, np.zeros(P)))
        np.testing.assert_allclose(result.step, expected_step, **close)
        np.testing.assert_allclose(curvature.to_dense(result.state), reference.cov, **close)
        state = result.state


@each_entry
@pytest.mark.slow
def test_respond_sees_the_gram_matrix_after_forgetting(entry: Entry, rtol: float) -> None:
    rng = np.random.default_rng(1)
    curvature = entry.build()
    state = curvature.init(Prior(cov=jnp.ones(P), kept=None, layout=LAYOUT))
    rows, keep = jnp.asarray(rng.normal(size=(M, P))), jnp.asarray(0.5)
    seen = []

    def respond(gram):
        seen.append(gram)
        return Response(jnp.zeros((M, 1), gram.dtype), jnp.zeros(M, gram.dtype))

    def respond_and_tell(state, rows):
        seen.clear()
        result = curvature.update(state, rows, respond, keep)
        return result, seen[-1]

    result, last_seen = jax.jit(respond_and_tell)(state, rows)
    if not entry.name.startswith("mixed"):  # whose parts are shown their own
        np.testing.assert_allclose(last_seen, rows @ rows.T / 0.5, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(result.step, np.zeros(P), atol=rtol)
    np.testing.assert_allclose(curvature.to_dense(result.state), 2 * np.eye(P), rtol=rtol, atol=rtol)


@each_entry
@pytest.mark.slow
def test_samples_have_the_covariance_they_are_drawn_from(entry: Entry) -> None:
    rng = np.random.default_rng(2)
    curvature = entry.build()
    state = curvature.init(Prior(cov=jnp.asarray(random_prior(rng, "variances")), kept=None, layout=LAYOUT))
    rows = jnp.asarray(rng.normal(size=(M, P)))
    said = Response(jnp.asarray(rng.normal(size=(M, R))), jnp.zeros(M))

    @jax.jit
    def learn_and_draw(state, rows, keys):
        posterior = curvature.update(state, rows, lambda gram: said, jnp.asarray(0.9)).state
        return curvature.to_dense(posterior), jax.vmap(lambda key: curvature.sample(posterior, key))(keys)

    cov, draws = map(np.asarray, learn_and_draw(state, rows, jax.random.split(jax.random.key(0), 20_000)))
    sd = np.sqrt(np.diag(cov))
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.05)


BLOCK, BLOCKS = 1_000, 100


@pytest.mark.slow
@pytest.mark.float64  # float32 inside, whatever the run: once is enough
@pytest.mark.parametrize("entry", entries(float32=True))
def test_positive_definite_after_a_hundred_thousand_float32_steps(entry: Entry) -> None:
    """Badly scaled outer products, fading: every eigenvalue of P stays positive in float32."""
    curvature = entry.build()
    state = curvature.init(Prior(cov=jnp.ones(P, jnp.float32), kept=None, layout=LAYOUT))
    rng = np.random.default_rng(3)
    scales = np.geomspace(0.1, 10, P)
    rows = jnp.asarray(
        np.stack([random_rows(rng, outer_products=True)[:1] * scales for _ in range(BLOCK)]), jnp.float32
    )
    factors = jnp.asarray(rng.normal(size=(BLOCK, 1, 1)), jnp.float32)

    @jax.jit
    def many(state):
        def one(state, row):
            said = Response(row[1], jnp.zeros(1, jnp.float32))
            return curvature.update(state, row[0], lambda gram: said, jnp.float32(0.999)).state, None

        return jax.lax.fori_loop(0, BLOCKS, lambda _, s: jax.lax.scan(one, s, (rows, factors))[0], state)

    cov = np.asarray(curvature.to_dense(many(state)), float)
    assert np.isfinite(cov).all()
    np.testing.assert_allclose(cov, cov.T, rtol=1e-3, atol=1e-4 * np.abs(cov).max())
    assert np.linalg.eigvalsh((cov + cov.T) / 2).min() > 0


STARVED_QUICK = {"dense", "dense batch", "square root", "kronecker", "low rank"}
FADING, STARVED, AFTERWARDS, NEVER = 0.05, 2_500, 400, [2, 3]


@pytest.mark.float64  # float32 inside, but for `information`
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name, marks=[] if entry.name in STARVED_QUICK else [pytest.mark.slow])
        for entry in REGISTRY
    ],
)
def test_an_input_never_seen_stays_bounded_and_is_learned_once_it_comes(entry: Entry) -> None:
    """More than 88 / fading steps (709 / fading in float64), after which a variance that only fades has overflowed."""
    dtype, steps = (jnp.float64, 16_000) if entry.float64 else (jnp.float32, STARVED)
    curvature = entry.build()
    state = curvature.init(Prior(cov=jnp.ones(P, dtype), kept=None, layout=LAYOUT))
    rng = np.random.default_rng(5)
    truth = jnp.asarray(rng.normal(size=P), dtype)
    rows = np.stack([random_rows(rng, outer_products=True)[:1] for _ in range(steps + AFTERWARDS)])
    rows[:steps, :, NEVER] = 0.0

    def one(carried, row):
        state, params = carried
        error = row @ (truth - params)
        update = curvature.update(
            state, row, lambda gram: Response(10 * jnp.ones((1, 1), dtype), 100 * error), jnp.asarray(1 - FADING, dtype)
        )
        return (update.state, params + update.step), error[0]

    learn = jax.jit(lambda carried, rows: jax.lax.scan(one, carried, rows))
    starved, errors = learn((state, jnp.zeros(P, dtype)), jnp.asarray(rows[:steps], dtype))
    cov = np.asarray(curvature.to_dense(starved[0]), float)
    assert np.isfinite(cov).all()
    assert np.abs(errors[-100:]).mean() < 0.05 * np.abs(errors[:5]).mean()
    assert np.all(np.diag(cov)[NEVER] > 100)  # forgotten: any value will be learned at once
    (_, params), errors = learn(starved, jnp.asarray(rows[steps:], dtype))
    assert np.isfinite(params).all()
    assert np.abs(errors[-100:]).mean() < 0.05 * np.abs(truth[jnp.array(NEVER)]).mean()


@pytest.mark.float64
def test_kronecker_rows_that_are_no_outer_products_in_float32() -> None:
    """Rows as of a convolution, inputs of very different sizes, 3,000 of them: float32 has P as float64 has it."""
    layout = (("['bias']", (4,)), ("['weight']", (9, 4)))
    curvature, rng = nk.kronecker(), np.random.default_rng(0)
    scales = np.concatenate([np.ones(4), np.repeat(10.0 ** np.linspace(-1.5, 1.5, 9), 4)])
    rows = rng.normal(size=(3_000, 1, 40)) * scales

    def run(dtype: Any) -> np.ndarray:
        def step(state: Any, row: Any) -> Any:
            said = Response(jnp.ones((1, 1), dtype), jnp.zeros(1, dtype))
            return curvature.update(state, row, lambda gram: said, jnp.ones((), dtype)).state, None

        start = curvature.init(Prior(cov=jnp.full(40, 3.0, dtype), kept=None, layout=layout))
        return np.asarray(curvature.to_dense(jax.jit(lambda: jax.lax.scan(step, start, jnp.asarray(rows, dtype)))()[0]))

    exact, found = run(jnp.float64), run(jnp.float32)
    half = np.linalg.inv(np.linalg.cholesky(exact))
    np.testing.assert_allclose(np.linalg.eigvalsh(half @ found @ half.T), 1.0, atol=0.01)
