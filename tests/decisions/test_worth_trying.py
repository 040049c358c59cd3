"""Which arms are worth trying: against draws of the future, and a literal loop over the numbers of further rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import natkal as nk
from natkal.decisions.arm_knowledge import of_mixture
from natkal.decisions.policies import Knowledge
from natkal.decisions.wild_rewards import Sizes
from natkal.decisions.worth_trying import TRIALS, pays_to_try
from natkal.engine.joint import JointLaw

ALL = jnp.ones(4, bool)


def law_of(location: np.ndarray, variance: np.ndarray, noise: np.ndarray) -> JointLaw:
    return JointLaw(
        log_weights=jnp.zeros(1),
        location=jnp.asarray(location)[None],
        cov=jnp.diag(jnp.asarray(variance))[None],
        mean=jnp.asarray(location)[None],
        noise=jnp.asarray(noise)[None],
    )


@pytest.mark.float64
def test_against_a_literal_loop() -> None:
    rng = np.random.default_rng(0)
    family = nk.families.Gaussian(1.0)
    ask = jax.jit(lambda law: pays_to_try(family, law, ALL))
    both = set()
    for _ in range(40):
        mean, variance, noise = rng.normal(size=4), 10 ** rng.uniform(-4, 1, size=4), rng.uniform(0.1, 2, size=4)
        worth = noise / variance
        horizon, best = max(1.0, worth.max()), mean.max()
        answer = ask(law_of(mean, variance, noise))
        for arm, found in enumerate(np.asarray(answer)):
            gap, pays = best - mean[arm], bool(mean[arm] == best)
            for more in TRIALS:
                if more <= horizon:
                    moved = np.sqrt(variance[arm] * more / (more + worth[arm]))
                    gain = moved * stats.norm.pdf(gap / moved) - gap * stats.norm.sf(gap / moved)
                    pays |= max(horizon - more, 1) * gain >= more * gap
            assert found == pays
            both.add(bool(found))
    assert both == {True, False}


@pytest.mark.float64
def test_the_moments_of_a_mean_reward_against_draws() -> None:
    """Two members, Bernoulli rewards: the mean of sigmoid(raw), its variance, and the mean of p (1 - p)."""
    rng = np.random.default_rng(1)
    location, variance, weights = rng.normal(size=(2, 3)), rng.uniform(0.1, 2, size=(2, 3)), np.array([0.3, 0.7])
    chance = 1 / (1 + np.exp(-location))
    law = JointLaw(
        log_weights=jnp.log(jnp.asarray(weights)),
        location=jnp.asarray(location),
        cov=jax.vmap(jnp.diag)(jnp.asarray(variance)),
        mean=jnp.asarray(chance),
        noise=jnp.asarray(chance * (1 - chance)),
    )
    found = of_mixture(nk.families.Bernoulli(), law)
    member = rng.choice(2, 400_000, p=weights)
    raw = location[member] + np.sqrt(variance[member]) * rng.normal(size=(len(member), 3))
    drawn = 1 / (1 + np.exp(-raw))
    for own, naive in zip(found, (drawn.mean(0), drawn.var(0), (drawn * (1 - drawn)).mean(0)), strict=True):
        np.testing.assert_allclose(own, naive, atol=2e-3)


def test_what_is_known_is_not_tried_and_what_is_not_known_is() -> None:
    """Of two arms with the same lower mean, that of 1,000 rewards is left out, that of none is not; nor is the best."""
    family, mean = nk.families.Gaussian(1.0), np.array([1.0, 0.0, 0.0, 1.0])
    law = law_of(mean, np.array([1e-3, 1e-3, 4.0, 1e-3]), np.ones(4))
    np.testing.assert_array_equal(pays_to_try(family, law, ALL), [True, False, True, True])
    left = pays_to_try(family, law, jnp.array([False, True, False, False]))
    np.testing.assert_array_equal(left, [False, True, False, False])
    # a reward without noise, an arm without doubt: finite, and the best arm alone
    certain = law_of(mean, np.zeros(4), np.zeros(4))
    np.testing.assert_array_equal(pays_to_try(family, certain, ALL), [True, False, False, True])


@pytest.mark.float64
@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_frequencies_are_the_probabilities_that_are_told(floor: float) -> None:
    """Three arms, of one hardly anything is known: a chi-squared test.

    It has its turn in half of the decisions. With a floor, that share of the decisions is any arm.
    """
    law = law_of(np.array([1.0, 0.995, -3.0]), np.array([1e-3, 2e-3, 1.0]), np.ones(3))
    seen, scales = Sizes(*jnp.array([100.0, -5.0, 30.0, 0.0])), jnp.array([0.5, 1.0])
    known = Knowledge(nk.families.Gaussian(1.0), law, jnp.ones(3, bool), scales, jnp.log(jnp.full(2, 0.5)), seen)
    policy = nk.thompson(draws=2000, floor=floor)
    chances = np.asarray(nk.thompson(draws=200_000, floor=floor).probabilities(known, jax.random.key(0)))
    found = jax.jit(jax.vmap(lambda key: policy.choose(known, key)))(jax.random.split(jax.random.key(1), 4000))
    assert chances[2] == pytest.approx((1 - floor) * 0.5 + floor / 3, abs=0.01)
    assert chances.sum() == pytest.approx(1.0)
    assert stats.chisquare(np.bincount(found.arm, minlength=3), 4000 * chances).pvalue > 1e-3
    np.testing.assert_allclose(found.probability, chances[np.asarray(found.arm)], atol=0.02)


@pytest.mark.float64
def test_the_better_of_three_coins_is_found() -> None:
    """Arms that pay 0.2, 0.5 and 0.35, without a context: few of 32 trials stay with a worse one."""
    pays = jnp.asarray([0.2, 0.5, 0.35])
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros((3, 1)), nk.families.Bernoulli())
    bandit = nk.bandit(model, arms=3)

    def step(state, key):
        choice, coin = jax.random.split(key)
        decision = bandit.act(state, jnp.ones(1), choice)
        reward = jax.random.uniform(coin) < pays[decision.arm]
        return bandit.learn(state, jnp.ones(1), decision.arm, reward.astype(int)), decision

    keys = jax.vmap(lambda key: jax.random.split(key, 600))(jax.random.split(jax.random.key(0), 32))
    told = jax.jit(jax.vmap(lambda keys: jax.lax.scan(step, bandit.init(), keys)[1]))(keys)
    share = np.mean(np.asarray(told.arm) == 1, axis=1)
    assert np.mean(share < 0.1) < 0.15
    assert np.mean(share) > 0.75
    assert np.max(told.probability) <= 1
