"""Kernels of the dense curvature: the same P, however it is kept."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.curvature import Prior, Response, chosen
from natkal.curvature.kernels import native
from natkal.curvature.kernels.deferred import Layout, Waiting
from natkal.curvature.kernels.fused import Fused
from natkal.curvature.kernels.packed import Native
from natkal.curvature.kernels.small import Small
from tests.curvature.registry import LAYOUT, P

KERNELS = ["deferred", "gpu", *(["cpu", "batch"] if native.available() else [])]
ROWS, LEARNERS, STEPS = 5, 2, 9
NO_LIMIT = jnp.asarray(np.inf, jnp.float32)
needs_compiler = pytest.mark.skipif(not native.available(), reason="no C++ compiler")


def observe(curvature, state, rows, accepted):
    """One observation, turned down where it is not accepted."""
    said = Response(jnp.ones((ROWS, 2), rows.dtype), jnp.ones(ROWS, rows.dtype))
    update = curvature.update(state, rows, lambda gram: said, jnp.asarray(0.95, rows.dtype))
    return chosen(accepted, update, state), update.step


CURVATURES = {**{kernel: nk.dense(kernel=kernel) for kernel in KERNELS}, "root": nk.square_root(kernel="deferred")}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", CURVATURES)
def test_the_same_under_vmap_when_some_observations_are_turned_down(kernel: str, rtol: float) -> None:
    """Several learners at once, each turning down others; the rows of one observation may not even be finite."""
    rng = np.random.default_rng(0)
    curvatures = [nk.dense(kernel="immediate"), CURVATURES[kernel]]
    prior = Prior(cov=jnp.asarray(rng.uniform(0.5, 2.0, P)), kept=None, layout=LAYOUT)
    states = [jax.tree.map(lambda leaf: jnp.stack([leaf] * LEARNERS), each.init(prior)) for each in curvatures]
    steps = [
        jax.jit(jax.vmap(lambda state, rows, ok, each=each: observe(each, state, rows, ok))) for each in curvatures
    ]
    for number in range(STEPS):
        rows = rng.normal(size=(LEARNERS, ROWS, P))
        accepted = np.array([number % 3 != 1, number % 4 != 2])
        rows[~accepted, 0, 0] = np.nan
        for which in range(2):
            states[which], moved = steps[which](states[which], jnp.asarray(rows), jnp.asarray(accepted))
            assert np.all(np.isfinite(np.asarray(moved)[accepted]))
    expected, found = (
        np.asarray(jax.vmap(each.to_dense)(state)) for each, state in zip(curvatures, states, strict=True)
    )
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kernel", ["immediate", *KERNELS])
def test_a_covariance_is_symmetric_to_the_last_bit(kernel: str) -> None:
    """No observation corrects what is not symmetric, so forgetting would let it grow without bound."""
    size, rows = 45, 7
    curvature, rng = nk.dense(kernel=kernel), np.random.default_rng(4)
    state = curvature.init(Prior(cov=jnp.ones(size, jnp.float32), kept=None, layout=(("w", (size,)),)))
    said = Response(jnp.asarray(rng.normal(size=(rows, rows)), jnp.float32), jnp.ones(rows, jnp.float32))
    learn = jax.jit(lambda state, rows: curvature.update(state, rows, lambda gram: said, jnp.float32(0.9)).state)
    for _ in range(8):
        state = learn(state, jnp.asarray(rng.normal(size=(rows, size)), jnp.float32))
    cov = np.asarray(curvature.to_dense(state))
    np.testing.assert_array_equal(cov, cov.T)


@needs_compiler
@pytest.mark.parametrize(("size", "rows"), [(1, 1), (33, 11), (450, 3)])
@pytest.mark.parametrize(("target", "layout"), [("packed", Native()), ("small", Small())])
def test_compiled_products_and_folds_equal_numpy(
    target: str, layout: Layout, size: int, rows: int, rtol: float
) -> None:
    """Sizes around the tiles, several parts, and more rows than one pass takes; batched and not."""
    rng = np.random.default_rng(1)
    full = rng.normal(size=(2, size, size))
    full = full + full.transpose(0, 2, 1)
    x, u = rng.normal(size=(2, rows, size)), rng.normal(size=(2, 4, size))
    dtype = jnp.zeros(()).dtype
    packed = jax.vmap(layout.pack)(jnp.asarray(full, dtype))
    close = {"rtol": rtol, "atol": rtol * np.sqrt(size) * 10}
    np.testing.assert_allclose(jax.vmap(layout.multiply)(packed, jnp.asarray(x, dtype)), x @ full, **close)
    np.testing.assert_allclose(layout.multiply(packed[1], jnp.asarray(x[1], dtype)), x[1] @ full[1], **close)
    limits, counts = jnp.array([0.2, 0.0], dtype), jnp.array([3, 0], jnp.int32)
    folded = jax.vmap(layout.fold)(packed, jnp.asarray(u, dtype), counts, jnp.full(2, 0.5, dtype), limits)
    unpacked = jax.vmap(lambda tiles: layout.unpack(tiles, size))(folded)
    expected = 0.5 * (full[0] - u[0, :3].T @ u[0, :3])
    over = np.diag(expected) > 0.2
    holds = np.where(over, np.sqrt(0.1 / np.where(over, np.diag(expected), 1.0)), 1.0)
    np.testing.assert_allclose(unpacked[0], expected * np.outer(holds, holds), **close)
    np.testing.assert_array_equal(unpacked[1], np.asarray(full[1], dtype))
    kernel = Fused(name="", layout=layout, capacity=4, target=target)
    store = Waiting(
        packed[0], jnp.asarray(u[0], dtype), jnp.asarray(3, jnp.int32), jnp.asarray(2.0, dtype), NO_LIMIT.astype(dtype)
    )
    now = 2.0 * (full[0] - u[0, :3].T @ u[0, :3])
    np.testing.assert_allclose(kernel.multiply(store, jnp.asarray(x[0], dtype)), x[0] @ now, **close)
    advanced = kernel.advance(store, jnp.asarray(x[0], dtype))
    np.testing.assert_allclose(advanced.images, x[0] @ now, **close)
    np.testing.assert_allclose(advanced.gram, x[0] @ now @ x[0].T, rtol=rtol, atol=rtol * size * 10)
    np.testing.assert_allclose(kernel.to_dense(advanced.store), now, **close)


def test_halves_multiply_and_fold_as_float32() -> None:
    """Every number of a product to the rounding of float32, though variances range over seven orders of magnitude."""
    from natkal.curvature.kernels.gpu import Triton

    rng = np.random.default_rng(2)
    layout, size = Triton.interpreted(), 75
    deviations = 10.0 ** rng.uniform(-3.5, 0, size)
    root = deviations[:, None] * rng.normal(size=(size, size)) / np.sqrt(size)
    full = (root @ root.T).astype(np.float32)
    x, u = (rng.normal(size=(37, size)) / deviations).astype(np.float32), 0.3 * root[:, :20].T.astype(np.float32)
    packed = layout.pack(jnp.asarray(full))
    found = np.asarray(jax.jit(layout.multiply)(packed, jnp.asarray(x)), float)
    exact, scale = x.astype(float) @ full, np.abs(x).astype(float) @ np.abs(full)
    assert np.max(np.abs(found - exact) / scale) < 2e-7
    args = jnp.asarray(13, jnp.int32), jnp.asarray(1.5, jnp.float32), NO_LIMIT
    folded = np.asarray(layout.unpack(jax.jit(layout.fold)(packed, jnp.asarray(u), *args), size), float)
    exact = 1.5 * (full.astype(float) - u[:13].T.astype(float) @ u[:13])
    assert np.max(np.abs(folded - exact) / (deviations[:, None] * deviations)) < 2e-6
    assert np.array_equal(folded, folded.T)


def test_powers_scale_into_halves() -> None:
    """Below 2^15 whatever comes; one where there is nothing to scale."""
    from natkal.curvature.kernels.halves import LOW, power_below, split

    largest = np.array([1e-38, 3e-5, 1.0, 32_768.0, 7e20, 3e38], np.float32)
    scaled = largest.astype(float) * np.asarray(power_below(jnp.asarray(largest)), float)
    assert np.all(scaled < 2.0**15)
    assert np.all(scaled[1:-1] >= 2.0**14)
    np.testing.assert_array_equal(power_below(jnp.array([0.0, jnp.inf, jnp.nan], jnp.float32)), 1.0)
    values = np.random.default_rng(3).uniform(-(2.0**15), 2.0**15, 1_000).astype(np.float32)
    high, low = np.asarray(split(jnp.asarray(values)), float)
    assert np.max(np.abs(high + low / LOW - values) / np.abs(values)) < 2.0**-22


@pytest.mark.parametrize("kernel", [name for name in CURVATURES if name not in ("gpu", "batch")])
def test_a_step_keeps_no_second_matrix(kernel: str) -> None:
    """With the state given away, a scan's temporaries are small beside P: checked on what was compiled.

    Interpreted GPU programs copy; small matrices are not kept so at this size.
    """
    size = 1_200
    curvature = CURVATURES[kernel]
    prior = Prior(cov=jnp.ones(size), kept=None, layout=(("w", (size,)),))
    state = jax.eval_shape(lambda: curvature.init(prior))
    rows = jax.ShapeDtypeStruct((3, 1, size), jnp.zeros(()).dtype)

    def run(state, rows):
        def one(state, row):
            said = Response(jnp.ones((1, 1), row.dtype), jnp.ones(1, row.dtype))
            update = curvature.update(state, row, lambda gram: said, jnp.asarray(0.99, row.dtype))
            return chosen(jnp.isfinite(update.step[0]), update, state), update.step[0]

        return jax.lax.scan(one, state, rows)

    analysis: Any = jax.jit(run, donate_argnums=0).lower(state, rows).compile().memory_analysis()
    matrix = size * size * rows.dtype.itemsize
    # Stripes of 256 rows count here; at p = 6,000 they are a twentieth of P.
    assert analysis.temp_size_in_bytes < 0.4 * matrix
    assert analysis.alias_size_in_bytes > 0.5 * matrix


def test_kernels_are_named() -> None:
    with pytest.raises(ValueError, match=r"kernel: must be one of jax, .*, got 'fast'"):
        nk.dense(kernel="fast")
    with pytest.raises(ValueError, match="one device"):
        nk.dense(kernel="gpu", mesh=jax.make_mesh((1,), ("d",)))
    with pytest.raises(ValueError, match="for a square root, got 'cpu'"):
        nk.square_root(kernel="cpu")
    assert nk.square_root().kernel_for(1_000).name == "deferred"
    assert nk.dense().kernel_for(20).name == "immediate"
    assert nk.dense(kernel="jax").kernel_for(1_000).name == "deferred"
