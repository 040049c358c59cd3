"""The one filter of all candidates is the project's own, and that is the normal law of everything that was seen."""

import functools

import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.forecasting.filter import Belief, gain_of, learned, move


def _moved(matrix, state, inputs):
    return matrix @ state


def test_it_is_the_state_filter():
    rng = np.random.default_rng(0)
    batch, size = 3, 4
    moved = np.eye(size) + 0.2 * rng.normal(size=(batch, size, size))
    noise = np.stack([np.cov(rng.normal(size=(size, 9))) for _ in range(batch)])
    belief = Belief(rng.normal(size=(batch, size)), np.broadcast_to(2.0 * np.eye(size), (batch, size, size)))
    filters = [
        nk.state_filter(
            functools.partial(_moved, jnp.asarray(moved[one])),
            lambda s, u: u @ s,
            nk.families.Gaussian(0.7),
            process_noise=jnp.asarray(noise[one]),
            curvature=nk.curvature.dense(),
        )
        for one in range(batch)
    ]
    states = [own.init(jnp.asarray(belief.mean[one]), jnp.asarray(belief.cov[one])) for one, own in enumerate(filters)]
    for _ in range(12):
        seen, y = rng.normal(size=(batch, size)), rng.normal(size=batch)
        mean = (moved @ belief.mean[..., None])[..., 0]
        prior = Belief(mean, move(belief.cov, moved, noise))
        belief = learned(prior, gain_of(prior.cov, seen, 0.7), y - (seen * mean).sum(axis=-1))
        for one, own in enumerate(filters):
            states[one], _ = own.step(states[one], jnp.asarray(seen[one]), y[one])
            np.testing.assert_allclose(belief.mean[one], states[one].estimate, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(belief.cov[one], own.covariance(states[one]), rtol=1e-9, atol=1e-9)
