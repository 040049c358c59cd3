"""A trained model that goes on learning: never worse than left alone, and better where the world has changed."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import natkal as nk
from natkal.laws import laws_for

LN2 = float(np.log(2))


def network(family, outputs=1, seed=0):
    params = nk.mlp_params(jax.random.key(seed), (2, 6, outputs))
    return nk.static_model(nk.mlp_apply, params, family)


@functools.cache
def learners(family):
    """The model, a learner that adapts it, and one that leaves it as it is, with what is learned of its law."""
    model = network(family)
    frozen = nk.bank([nk.online(model, prior_cov=1.0, curvature=nk.frozen())], share=0.0, laws=laws_for(family))
    return model, nk.adapt(model, inputs=np.zeros(2)), dataclasses.replace(frozen, marginal=None)


def losses(learner, inputs, targets):
    _, info = nk.run(learner, learner.init(), inputs, targets)
    return -np.asarray(info.log_prob, float)


@pytest.mark.parametrize(
    "family", [nk.families.Gaussian(0.5), nk.families.Bernoulli(), nk.families.Poisson()], ids=["real", "two", "counts"]
)
@settings(max_examples=20, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    seed=st.integers(0, 10_000),
    jumps=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4),
    flips=st.integers(1, 40),
)
def test_never_more_than_ln_2_behind_the_frozen_model(family, seed, jumps, flips):
    """On streams that turn against whoever leads: the bound holds after every row."""
    rng = np.random.default_rng(seed)
    inputs = jnp.asarray(rng.normal(size=(120, 2)))
    model, adapting, frozen = learners(family)
    answers = np.asarray(jax.vmap(lambda row: nk.mlp_apply(model.params, row)[0])(inputs))
    turned = np.where((np.arange(120) // flips) % 2 == 0, 1.0, -1.0)
    if family.support == "real":
        targets = turned * answers + np.resize(jumps, 120) * (rng.uniform(size=120) < 0.05)
    elif family.support == "count":
        targets = rng.poisson(np.exp(np.clip(turned * answers, -3, 6)))
    else:
        targets = (turned * answers > 0).astype(int)
    ours, theirs = (losses(learner, inputs, jnp.asarray(targets)) for learner in (adapting, frozen))
    assert (np.cumsum(ours) <= np.cumsum(theirs) + LN2 + 1e-6 * np.abs(np.cumsum(theirs))).all()


def test_follows_a_plant_that_has_changed():
    """A network trained before the change; a linear correction and small moves of the weights are both on offer."""
    model = network(nk.families.Gaussian(0.01))
    inputs = jax.random.normal(jax.random.key(1), (600, 2))
    before = jax.vmap(lambda row: nk.mlp_apply(model.params, row)[0])(inputs)
    targets = 1.5 * before + 0.3 * inputs[:, 0] + 0.1 * jax.random.normal(jax.random.key(2), (600,))
    learner = nk.adapt(model, inputs=inputs[0])
    _, info = nk.run(learner, learner.init(), inputs, targets)
    adapted = np.square(np.asarray(info.prediction.mean)[300:, 0] - np.asarray(targets)[300:]).mean()
    left_alone = np.square(np.asarray(before - targets)[300:]).mean()
    assert adapted < 0.011 < 0.6 * left_alone  # the noise has variance 0.01
    assert learner.size == 1 + 3 * 8


def test_a_recurrent_model_has_no_correction_and_stays_alive():
    model = nk.recurrent_network(jax.random.key(0), nk.cells.tanh(4), 1, nk.families.Gaussian(1.0))
    learner = nk.adapt(model)
    series = jnp.sin(jnp.arange(60) / 3.0)
    _, info = nk.run(learner, learner.init(), series[:-1, None], series[1:])
    assert np.isfinite(np.asarray(info.log_prob)).all()
