"""Forced trials: the rule against a literal loop, and what it says of cases that one can judge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.decisions.forced_trials import DEVIATIONS, FIRST, LARGEST_RATIO, hardly_known
from natkal.decisions.wild_rewards import Sizes
from natkal.engine.joint import JointLaw

NUMBERS = nk.families.Gaussian(1.0)


def law_of(mean: np.ndarray, variance: np.ndarray, noise: np.ndarray, weights: np.ndarray) -> JointLaw:
    """Members m, arms n; all arguments but the weights (m, n)."""
    return JointLaw(
        log_weights=jnp.log(jnp.asarray(weights)),
        location=jnp.asarray(mean),
        cov=jax.vmap(jnp.diag)(jnp.asarray(variance)),
        mean=jnp.asarray(mean),
        noise=jnp.asarray(noise),
    )


def one_member(mean: list[float], variance: list[float], noise: float) -> JointLaw:
    return law_of(np.array([mean]), np.array([variance]), np.full((1, len(mean)), noise), np.ones(1))


def sizes(lowest: float, highest: float) -> Sizes:
    return Sizes(*jnp.array([100.0, lowest, highest, 0.0]))


@pytest.mark.float64
def test_against_a_literal_loop() -> None:
    rng = np.random.default_rng(0)
    ask = jax.jit(lambda law, available, seen: hardly_known(NUMBERS, law, available, seen))
    both = set()
    for _ in range(60):
        mean, variance = rng.normal(size=(2, 4)), 10 ** rng.uniform(-4, 1, size=(2, 4))
        noise, weights = rng.uniform(0.01, 2, size=(2, 4)), rng.dirichlet([1, 1])
        available, (lowest, highest) = rng.uniform(size=4) < 0.8, np.sort(rng.normal(scale=5, size=2))
        if not available.any():
            continue
        found = ask(law_of(mean, variance, noise, weights), jnp.asarray(available), sizes(lowest, highest))
        known = [max(noise[m, arm] / variance[m, arm] for m in range(2)) for arm in range(4)]
        expected, usual = weights @ mean, weights @ noise
        there = [arm for arm in range(4) if available[arm]]
        best, deviation = max(expected[arm] for arm in there), np.sqrt(max(usual[arm] for arm in there))
        room = max(0.0, highest - best - DEVIATIONS * deviation)
        room += max(0.0, highest - lowest - 2 * DEVIATIONS * deviation)
        for arm in range(4):
            gap = max(best - expected[arm], 1e-300)
            most = max(known[other] for other in there)
            needed = max(0.0, np.log(most / FIRST)) * np.sqrt(min(room / gap, LARGEST_RATIO))
            assert bool(found[arm]) == (arm in there and known[arm] < needed)
            both.add(bool(found[arm]))
    assert both == {True, False}


def test_no_trial_where_the_best_arm_pays_what_was_never_exceeded() -> None:
    """A reward of 50 was seen. Where the best arm pays 1.2, another is tried; where it pays 50, a trial costs 49."""
    every, variance = jnp.ones(2, bool), [1e-7, 1e-5]
    usual = hardly_known(NUMBERS, one_member([1.2, 1.0], variance, 1e-4), every, sizes(1.0, 50.0))
    best = hardly_known(NUMBERS, one_member([50.0, 1.0], variance, 1e-4), every, sizes(1.0, 50.0))
    np.testing.assert_array_equal(usual, [False, True])
    np.testing.assert_array_equal(best, [False, False])


def test_none_before_the_best_arm_is_known_and_none_for_classes() -> None:
    every, seen = jnp.ones(2, bool), sizes(-5.0, 5.0)
    early = hardly_known(NUMBERS, one_member([0.5, 0.0], [0.25, 4.0], 1.0), every, seen)
    assert not np.any(early)
    late = one_member([0.5, 0.0], [1e-3, 4.0], 1.0)
    np.testing.assert_array_equal(hardly_known(NUMBERS, late, every, seen), [False, True])
    assert not np.any(hardly_known(nk.families.Bernoulli(), late, every, seen))


def test_the_surest_member_decides() -> None:
    """An arm of 1,000 rewards for a linear model is known, whatever little a larger model makes of them."""
    mean, noise = np.array([[0.5, 0.0]] * 2), np.ones((2, 2))
    variance, weights = np.array([[1e-3, 1e-3], [0.3, 0.3]]), np.array([0.01, 0.99])
    found = hardly_known(NUMBERS, law_of(mean, variance, noise, weights), jnp.ones(2, bool), sizes(-3.0, 3.0))
    assert not np.any(found)
