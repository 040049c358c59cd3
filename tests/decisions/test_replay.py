"""Off-policy estimates: against a world whose values are known, and against the formulas written out."""

import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.decisions.off_policy import OffPolicySums

ROWS, LEVEL = 4000, 0.999


def world(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """A log of a policy that depends on the context, and the true value of another policy, 0.8 for arm x > 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=ROWS)
    chance = np.where(x > 0, 0.3, 0.6)  # the log's probability of arm 1
    arm = (rng.random(ROWS) < chance).astype(int)
    mean = np.where(arm == 1, 0.2 + 0.5 * (x > 0), 0.5)
    reward = (rng.random(ROWS) < mean).astype(float)
    # the other policy takes arm 1 with probability 0.8 where x > 0, else 0.1: half of the contexts each
    value = 0.5 * (0.8 * 0.7 + 0.2 * 0.5) + 0.5 * (0.1 * 0.2 + 0.9 * 0.5)
    return x, arm, reward, np.where(arm == 1, chance, 1 - chance), value


def test_estimates_hold_the_true_value_and_are_the_formulas() -> None:
    x, arm, reward, logged, value = world(0)
    ahead = np.where(x > 0, 0.8, 0.1)
    chosen = np.where(arm == 1, ahead, 1 - ahead)
    model = np.stack([np.full(ROWS, 0.5), 0.2 + 0.5 * (x > 0)], axis=1)
    own, policy = model[np.arange(ROWS), arm], (1 - ahead) * model[:, 0] + ahead * model[:, 1]
    found = nk.off_policy(reward, logged, chosen, expected=own, expected_of_policy=policy)
    weight = chosen / logged
    robust = policy + weight * (reward - own)
    assert found.inverse_propensity.value == pytest.approx(np.mean(weight * reward), rel=1e-12)
    assert found.self_normalised.value == pytest.approx(np.sum(weight * reward) / np.sum(weight), rel=1e-12)
    assert found.doubly_robust is not None
    assert found.doubly_robust.value == pytest.approx(robust.mean(), rel=1e-12)
    assert found.doubly_robust.error == pytest.approx(robust.std(ddof=1) / np.sqrt(ROWS), rel=1e-9)
    for estimate in (found.inverse_propensity, found.self_normalised, found.doubly_robust):
        low, high = estimate.interval(LEVEL)
        assert low < value < high
    assert found.doubly_robust.error < found.inverse_propensity.error
    parts = OffPolicySums()
    for first in range(0, ROWS, 1000):
        part = slice(first, first + 1000)
        parts.add(reward[part], weight[part], robust[part])
    assert parts.estimates().self_normalised.error == pytest.approx(found.self_normalised.error, rel=1e-9)


def test_missing_rewards_are_left_out_and_impossible_decisions_refused() -> None:
    found = nk.off_policy([1.0, np.nan, 0.0], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    assert found.logged.value == 0.5
    assert found.doubly_robust is None
    with pytest.raises(ValueError, match="row 1 is 0"):
        nk.off_policy([1.0, 1.0], [0.5, 0.0], [0.5, 0.5])


def test_replay_values_the_bandit_it_trains() -> None:
    """After the log, the greedy bandit's true value is within the interval of its estimate on a fresh log."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros((2, 3)), nk.families.Bernoulli())
    bandit = nk.bandit(
        model, arms=2, policy=nk.epsilon_greedy(0.1), learner=lambda rewards: nk.online(rewards, prior_cov=1.0)
    )

    def log(seed: int) -> nk.DecisionLog:
        x, arm, reward, logged, _ = world(seed)
        contexts = np.stack([np.ones(ROWS), x, np.sign(x)], axis=1)
        return nk.DecisionLog(contexts, arm, reward, logged)

    trained = nk.replay(bandit, log(1))
    fresh = nk.replay(bandit, log(2), state=trained.state, learn=False)
    # the right arm has probability 0.95: 0.7 where x > 0 and 0.5 elsewhere, against 0.5 and 0.2
    value = 0.5 * (0.95 * 0.7 + 0.05 * 0.5) + 0.5 * (0.95 * 0.5 + 0.05 * 0.2)
    assert fresh.value.doubly_robust is not None
    low, high = fresh.value.doubly_robust.interval(LEVEL)
    assert low < value < high
    assert fresh.value.doubly_robust.value > fresh.value.logged.value
