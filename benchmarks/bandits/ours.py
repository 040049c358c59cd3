"""natkal at its defaults on a bandit problem: the bandit of `natkal decide` and `KalmanBandit`, in one scan."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bandits.problems import Problem
from natkal.compiling import compile_loop
from natkal.tabular.bandit_options import BanditOptions, make_bandit


def rewards_of(problem: Problem, seed: int = 0, **options: Any) -> np.ndarray:
    """The reward of each row."""
    columns, arms = problem.contexts.shape[1], problem.rewards.shape[1]
    bandit = make_bandit(BanditOptions(reward=problem.kind, **options), (True,) * columns, columns, arms)

    def whole(state: Any, contexts: Any, rewards: Any, keys: Any) -> Any:
        def turn(state: Any, row: Any) -> Any:
            context, paid, key = row
            decision = bandit.act(state, context, key)
            reward = paid[decision.arm]
            return bandit.learn(state, context, decision.arm, reward), reward

        return jax.lax.scan(turn, state, (contexts, rewards, keys))

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), len(problem.rewards))
        state = jax.jit(bandit.init)()
        _, found = compile_loop(whole)(state, jnp.asarray(problem.contexts), jnp.asarray(problem.rewards), keys)
    return np.asarray(found)
