"""natkal at its defaults on a bandit problem: the bandit of `natkal decide` and `KalmanBandit`, in one scan."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bandits.problems import Problem
from natkal.compiling.policy import compile_loop
from natkal.decisions.bandit_options import BanditOptions, make_bandit


def arms_taken(problems: list[Problem], seeds: list[int]) -> np.ndarray:
    """The arms (problems, n) that are taken on draws of one problem, which run side by side; each with its seed."""
    columns, arms = problems[0].contexts.shape[1], problems[0].rewards.shape[1]
    bandit = make_bandit(BanditOptions(reward=problems[0].kind), (True,) * columns, columns, arms)

    def one(seed: Any, contexts: Any, rewards: Any) -> Any:
        def turn(state: Any, row: Any) -> Any:
            context, paid, key = row
            arm = bandit.act(state, context, key).arm
            return bandit.learn(state, context, arm, paid[arm]), arm

        keys = jax.random.split(jax.random.key(seed), len(contexts))
        return jax.lax.scan(turn, bandit.init(), (contexts, rewards, keys))[1]

    with jax.enable_x64(True):
        rows = (jnp.asarray(np.stack([getattr(own, name) for own in problems])) for name in ("contexts", "rewards"))
        return np.asarray(compile_loop(jax.vmap(one))(jnp.asarray(seeds), *rows))
