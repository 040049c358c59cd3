"""One reward of another order leaves no trace; when it comes again it is taken."""

import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.banks.units import scales
from natkal.decisions import wild_rewards
from natkal.decisions.bandit_learner import BanditLearner
from natkal.decisions.bandit_options import BanditOptions
from natkal.storage.states import state_arrays


def sifted(rewards: list[float]) -> list[float]:
    sizes, found = wild_rewards.start(jnp.float64), []
    for reward in rewards:
        sizes, taken = wild_rewards.sift(sizes, jnp.asarray(reward))
        found.append(float(taken))
    return found


@pytest.mark.parametrize("wild", [1e6, -999.0, jnp.inf])
def test_set_aside_once_then_taken(wild: float) -> None:
    ordinary = [0.5, -1.0, 0.0, 2.0, 1.0]
    found = sifted([*ordinary, wild, 0.5, wild, 0.5])
    np.testing.assert_array_equal(found[:7], [*ordinary, np.nan, 0.5])
    assert np.isinf(wild) or found[7] == wild


def test_large_and_rare_rewards_are_taken() -> None:
    rewards = [1.0, 1.2, 1.0, 1.1, 1.0, 50.0, 1.0, 50.0]
    assert sifted(rewards) == rewards


def test_zeros_and_missing_rewards_say_nothing_of_size() -> None:
    rewards = [0.0] * 10 + [np.nan, 30.0]
    np.testing.assert_array_equal(sifted(rewards), rewards)


def test_lowest_and_highest_are_those_of_the_rewards_taken() -> None:
    sizes = wild_rewards.start(jnp.float64)
    for reward in (2.0, 3.0, np.nan, 2.5, 4.0, 3.5, 1e6):
        sizes, _ = wild_rewards.sift(sizes, jnp.asarray(reward))
    assert (float(sizes.taken), float(sizes.lowest), float(sizes.highest)) == (5.0, 2.0, 4.0)


def test_a_first_value_of_another_order_is_left_out() -> None:
    values = jnp.array([1.0, -2.0, 1e6, 0.5])
    np.testing.assert_array_equal(scales.without_lone(values), [1.0, -2.0, np.nan, 0.5])
    twice = jnp.array([1.0, -2.0, 1e6, 2e6])
    np.testing.assert_array_equal(scales.without_lone(twice), twice)


def test_the_posterior_is_as_if_the_reward_were_missing() -> None:
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros((2, 3)), nk.families.Gaussian(1.0))
    bandit = nk.bandit(model, arms=2)
    rng = np.random.default_rng(0)
    contexts, rewards = rng.normal(size=(12, 3)), rng.normal(size=12)
    told = {}
    for name, value in (("wild", 1e7), ("missing", np.nan)):
        rewards[8] = value
        state = bandit.init()
        for context, arm, reward in zip(contexts, np.arange(12) % 2, rewards, strict=True):
            state = bandit.learn(state, context, arm, reward)
        told[name] = state_arrays(state.learner)
    for leaf, value in told["missing"].items():
        np.testing.assert_array_equal(told["wild"][leaf], value)


@pytest.mark.parametrize("at", [3, 30])
def test_a_table_bandit_goes_on_as_before(at: int) -> None:
    rng = np.random.default_rng(1)
    contexts, arms = rng.normal(size=(60, 2)), np.arange(60) % 2
    rewards = np.where(arms == 0, contexts[:, 0], -contexts[:, 0]) + 0.1 * rng.normal(size=60)
    rewards[at] = 1e6
    learner = BanditLearner(BanditOptions(model="linear"), [True, True], ["a", "b"])
    learner.learn(contexts, arms, rewards)
    found = learner.expected(np.array([[1.0, 0.0]]))[0]
    np.testing.assert_allclose(found, [1.0, -1.0], atol=0.2)
