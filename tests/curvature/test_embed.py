"""A state within a larger one: what was known stays, what is new has its prior."""

import jax
import numpy as np
import pytest

import natkal as nk
from natkal.models.base import ravel


def layers(sizes):
    return nk.mlp_params(jax.random.key(0), sizes)


def places(small, large) -> np.ndarray:
    found, first = [], 0
    for own, wide in zip(jax.tree.leaves(small), jax.tree.leaves(large), strict=True):
        numbers = np.arange(first, first + wide.size).reshape(wide.shape)
        found.append(numbers[tuple(slice(0, size) for size in own.shape)].ravel())
        first += wide.size
    return np.concatenate(found)


@pytest.mark.float64
@pytest.mark.parametrize("curvature", [nk.dense(kernel="immediate"), nk.blocks(), nk.kronecker()], ids=repr)
def test_the_old_block_of_the_covariance_is_kept(curvature):
    small, large = layers((2, 3, 2)), layers((4, 3, 3))
    states = []
    for params, outputs in ((small, 2), (large, 3)):
        model = nk.static_model(nk.mlp_apply, params, nk.families.Gaussian(np.eye(outputs)))
        learner = nk.online(model, prior_cov=nk.fan_in_prior(params), curvature=curvature)
        states.append((learner, jax.jit(learner.init)()))
    rng = np.random.default_rng(0)
    learned, _ = nk.run(states[0][0], states[0][1], rng.normal(size=(20, 2)), rng.normal(size=(20, 2)))
    at = places(small, large)
    whole, kept = jax.jit(
        lambda old, new: (curvature.to_dense(curvature.embed(old, new, at)), curvature.to_dense(old))
    )(learned.curvature, states[1][1].curvature)
    whole = np.asarray(whole)
    np.testing.assert_allclose(whole[np.ix_(at, at)], kept, rtol=1e-9, atol=1e-12)
    new = np.setdiff1d(np.arange(len(whole)), at)
    assert np.abs(whole[np.ix_(at, new)]).max() < (1e-12 if "Kron" not in repr(curvature) else np.inf)
    prior = np.asarray(ravel(nk.fan_in_prior(large)))
    ratio = np.diag(whole)[new] / prior[new]
    assert (ratio > 0.05).all()
    assert (ratio < 20).all()
