"""Cosines of random projections: the kernel they stand for, the filter on them, and contexts and arms that grow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.decisions import bandit_options
from natkal.decisions.bandit_learner import BanditLearner
from natkal.decisions.bandit_options import WAVES_UP_TO, BanditOptions, architectures, make_bandit
from natkal.models.arms import heads_model
from natkal.tables.learner.architectures import Layers, Shape
from natkal.tables.learner.maps import Cosines


def test_products_of_cosines_are_the_gaussian_kernel() -> None:
    """E[2 cos(w'x + b) cos(w'z + b)] = exp(-|x - z|^2 / (2 d)); a product has a deviation below 2."""
    many = Cosines(3, waves=20_000)
    points = np.random.default_rng(0).normal(size=(6, 3))
    features = np.stack([many.cosines(jnp.asarray(point)) for point in points])
    kernel = np.exp(-np.square(points[:, None] - points[None]).sum(-1) / 6)
    np.testing.assert_allclose(features @ features.T / many.waves, kernel, atol=5 * 2 / np.sqrt(many.waves))


def test_a_filter_on_them_is_a_ridge_regression_for_each_arm() -> None:
    rng = np.random.default_rng(1)
    cosines, arms, variance = Cosines(2, waves=7), 2, 0.8
    waves = Layers((), map=cosines)
    params = waves.params(0, Shape(columns=2, scaled=(True, True), past=0, fan_in=2), arms)
    family = nk.families.Gaussian(1.0)
    model = heads_model(nk.static_model(waves.apply, params, family), family, arms)
    learner = nk.online(model, prior_cov=variance, curvature=nk.blocks(by="neuron"))
    contexts, chosen, rewards = rng.normal(size=(30, 2)), rng.integers(arms, size=30), rng.normal(size=30)
    state, _ = nk.run(learner, learner.init(), {"context": contexts, "arm": chosen}, rewards)
    features = np.stack([np.r_[cosines.cosines(jnp.asarray(row)), row, 1.0] for row in contexts])
    for arm in range(arms):
        own = features[chosen == arm]
        ridge = np.linalg.solve(own.T @ own + np.eye(10) / variance, own.T @ rewards[chosen == arm])
        found = np.r_[state.params[0]["weight"][:, arm], state.params[0]["bias"][arm]]
        np.testing.assert_allclose(found, ridge, atol=1e-9)


def test_a_bandit_that_grew_is_one_that_was_large_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column and an arm that come later were missing before: the same expected rewards, then and after learning."""
    waves = lambda options, fan_in: (Layers((), map=Cosines(fan_in, seed=5)),)  # noqa: E731
    monkeypatch.setattr(bandit_options, "architectures", waves)
    make_bandit.cache_clear()
    options = BanditOptions(reward="binary")
    rng = np.random.default_rng(2)
    contexts, arms = rng.normal(size=(60, 3)), rng.integers(2, size=60)
    rewards = (contexts[:, 0] * (1 - 2 * arms) + rng.normal(size=60) > 0).astype(float)
    growing = BanditLearner(options, [True, True], ["a", "b"])
    large = BanditLearner(options, [True, True], ["a", "b"])
    large.scaled, large.room, large.arms, large.arm_room = [True] * 3, 4, ["a", "b", "c"], 4
    large._build()
    large.state = jax.jit(large.bandit.init)()
    first = np.where(np.arange(3) < 2, contexts, np.nan)[:40]
    growing.learn(first[:, :2], arms[:40], rewards[:40])
    large.learn(first, arms[:40], rewards[:40])
    growing.add_features([True])
    growing.add_arms(["c"])
    assert (growing.room, growing.arm_room) == (large.room, large.arm_room)
    # the scale of a column that was always missing is not that of one which was not there
    learned = large.state.learner._replace(inputs=growing.state.learner.inputs)
    large.state = large.state._replace(learner=learned)
    np.testing.assert_allclose(growing.expected(contexts), large.expected(contexts), atol=1e-9)
    for learner in (growing, large):
        learner.learn(contexts[40:], np.where(contexts[40:, 2] > 0, 2, arms[40:]), rewards[40:])
    np.testing.assert_allclose(growing.expected(contexts), large.expected(contexts), atol=1e-9)
    assert np.ptp(growing.expected(contexts)[:, 2]) > 0.01
    make_bandit.cache_clear()


def test_wide_contexts_have_none() -> None:
    options = BanditOptions()
    narrow, wide = (architectures(options, fan_in) for fan_in in (WAVES_UP_TO, WAVES_UP_TO + 1))
    assert [layers.name for layers in narrow] == ["linear", "waves", "near waves", "mlp:64"]
    assert wide == (Layers(()), Layers((64,)))
