"""One observation per call: the same learning as in a scan, and nothing lost in between."""

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.stream.live import SMALL, Packing


def test_calls_learn_what_a_scan_learns(rtol: float) -> None:
    """Keys of random draws, counters and flags go through the words of the state as well."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(12, 3)), rng.normal(size=12)
    targets[5] = np.nan
    params = jnp.zeros(3)
    model = nk.static_model(lambda w, u: w @ u, params, nk.families.Gaussian(1.0))
    learner = nk.online(model, rates=nk.fading(0.01), fisher=nk.sampled(2), robust=nk.robust())
    expected, told = nk.run(learner, learner.init(params), inputs, targets)
    service = nk.live(learner, learner.init(params))
    infos = [service.step(row, target) for row, target in zip(inputs, targets, strict=True)]
    for each in infos:
        assert all(isinstance(leaf, np.ndarray | float | bool) for leaf in jax.tree.leaves(each))
    found = jax.tree.map(lambda *leaves: np.stack(leaves), *infos)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol), found, told)
    np.testing.assert_allclose(service.state.params, expected.params, rtol=rtol, atol=rtol)
    assert int(service.state.steps) == int(expected.steps) == 11
    np.testing.assert_array_equal(jax.random.key_data(service.state.key), jax.random.key_data(expected.key))


def test_words_hold_every_kind_of_leaf() -> None:
    tree = {
        "flags": jnp.array([[True, False, True], [False, True, True]]),
        "halves": jnp.array([1.5, -2.0, 3.0], jnp.float16),
        "numbers": jnp.array(-7, jnp.int32),
        "reals": jnp.array([np.pi, np.nan]),
        "large": jnp.arange(float(SMALL)),
        "none": jnp.zeros((0, 2)),
    }
    packing = Packing(tree)
    for found in (packing.unpack(*packing.pack(tree)), packing.read(*packing.pack(tree))):
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
            assert np.asarray(one).dtype.kind == other.dtype.kind
            np.testing.assert_array_equal(one, other)
