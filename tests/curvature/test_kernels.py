"""Kernels of the dense curvature: the same P, however it is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.curvature import Prior, Response, chosen
from natkal.curvature.kernels import native
from tests.curvature.registry import LAYOUT, P

KERNELS = ["deferred", "gpu", *(["cpu"] if native.available() else [])]
ROWS, LEARNERS, STEPS = 5, 2, 9
needs_compiler = pytest.mark.skipif(not native.available(), reason="no C++ compiler")


def observe(curvature, state, rows, accepted):
    """One observation, turned down where it is not accepted."""
    said = Response(jnp.ones((ROWS, 2), rows.dtype), jnp.ones(ROWS, rows.dtype))
    update = curvature.update(state, rows, lambda gram: said, jnp.asarray(0.95, rows.dtype))
    return chosen(accepted, update, state), update.step


CURVATURES = {**{kernel: nk.dense(kernel=kernel) for kernel in KERNELS}, "root": nk.square_root(kernel="deferred")}


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


@needs_compiler
@pytest.mark.parametrize(("size", "rows"), [(1, 1), (33, 11), (450, 3)])
def test_compiled_products_and_folds_equal_numpy(size: int, rows: int, rtol: float) -> None:
    """Sizes around the tiles, several parts, and more rows than one pass takes; batched and not."""
    from natkal.curvature.kernels.packed import Native

    rng = np.random.default_rng(1)
    layout = Native()
    full = rng.normal(size=(2, size, size))
    full = full + full.transpose(0, 2, 1)
    x, u = rng.normal(size=(2, rows, size)), rng.normal(size=(2, 4, size))
    dtype = jnp.zeros(()).dtype
    packed = jax.vmap(layout.pack)(jnp.asarray(full, dtype))
    close = {"rtol": rtol, "atol": rtol * np.sqrt(size) * 10}
    np.testing.assert_allclose(jax.vmap(layout.multiply)(packed, jnp.asarray(x, dtype)), x @ full, **close)
    np.testing.assert_allclose(layout.multiply(packed[1], jnp.asarray(x[1], dtype)), x[1] @ full[1], **close)
    folded = jax.vmap(layout.fold)(packed, jnp.asarray(u, dtype), jnp.array([3, 0], jnp.int32), jnp.full(2, 0.5, dtype))
    unpacked = jax.vmap(lambda tiles: layout.unpack(tiles, size))(folded)
    np.testing.assert_allclose(unpacked[0], 0.5 * (full[0] - u[0, :3].T @ u[0, :3]), **close)
    np.testing.assert_array_equal(unpacked[1], np.asarray(full[1], dtype))


@pytest.mark.parametrize("kernel", [name for name in CURVATURES if name != "gpu"])  # interpreted programs copy
def test_a_step_keeps_no_second_matrix(kernel: str) -> None:
    """With the state given away, a scan's temporaries are small beside P: checked on what was compiled."""
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

    analysis = jax.jit(run, donate_argnums=0).lower(state, rows).compile().memory_analysis()
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
