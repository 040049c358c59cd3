"""A bandit along a log of somebody else's decisions: it learns from them, and is valued by them."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.compiling.policy import CompiledLoop, compile_loop
from natkal.decisions import Bandit, BanditState
from natkal.decisions.off_policy import OffPolicy, off_policy


class DecisionLog(NamedTuple):
    """n decisions in order: contexts, arms by number, rewards (NaN where missing) and the probabilities of the arms.

    `available` (n, arms) says which arms there were; None stands for all of them.
    """

    contexts: Any
    arms: Any
    rewards: Any
    probabilities: Any
    available: Any = None


class Replay(NamedTuple):
    """The bandit's state after the log, its value, and row by row what it would have done.

    `chosen` is the probability of the logged arm under the bandit, `expected` the model's reward of it,
    `expected_of_policy` the mean of the model's rewards over the bandit's choice; all before the row was learned.
    """

    state: BanditState
    value: OffPolicy
    chosen: np.ndarray
    expected: np.ndarray
    expected_of_policy: np.ndarray


def replay(
    bandit: Bandit, log: DecisionLog, *, state: BanditState | None = None, key: Any = None, learn: bool = True
) -> Replay:
    """What the bandit would have earned on a log, by estimates that correct for who chose the arms.

    Each row is first valued with what is known before it, then learned from (`learn=False`: never). The log needs the
    probability of each of its decisions.

    >>> import jax, jax.numpy as jnp, numpy as np, natkal as nk
    >>> rng = np.random.default_rng(0)
    >>> arms = rng.integers(2, size=400)  # a log of random decisions, of which arm 1 pays more often
    >>> rewards = (rng.random(400) < 0.2 + 0.6 * arms).astype(float)
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(2), nk.families.Bernoulli())
    >>> bandit = nk.bandit(model, arms=2)
    >>> found = nk.replay(bandit, nk.DecisionLog(np.ones((400, 1)), arms, rewards, np.full(400, 0.5)))
    >>> low, high = found.value.doubly_robust.interval()
    >>> 0.5 < found.value.logged.value < 0.6, 0.7 < low < 0.8 < high < 0.9
    (True, True)
    """
    rewards = np.asarray(log.rewards, float)
    start = bandit.init() if state is None else state
    keys = jax.random.split(jax.random.key(0) if key is None else key, len(rewards))
    arrays = jax.tree.map(jnp.asarray, (log.contexts, jnp.asarray(log.arms), rewards, log.available, keys))
    after, told = _compiled(bandit, learn)(start, *arrays)
    chosen, expected, expected_of_policy = (np.asarray(part, float) for part in told)
    value = off_policy(rewards, log.probabilities, chosen, expected=expected, expected_of_policy=expected_of_policy)
    return Replay(after, value, chosen, expected, expected_of_policy)


@lru_cache(maxsize=64)
def _compiled(bandit: Bandit, learn: bool) -> CompiledLoop:
    def whole(state: BanditState, *rows: Any) -> tuple[BanditState, Any]:
        def row(state: BanditState, row: Any) -> tuple[BanditState, Any]:
            context, arm, reward, available, key = row
            chances = bandit.probabilities(state, context, key, available)
            expected = bandit.expected(state, context)
            told = chances[arm], expected[arm], chances @ expected
            return (bandit.learn(state, context, arm, reward) if learn else state), told

        return jax.lax.scan(row, state, rows)

    return compile_loop(whole)
