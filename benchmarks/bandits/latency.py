"""`act` plus `learn` at 1,000 parameters: in one compiled loop, and call by call."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.compiling.policy import compile_loop

STEPS, ROUNDS = 1_000, 7
SIZES = (40, 20, 8)
"""A network of 988 parameters, with 8 arms."""


def rows(report: Callable[[str], None]) -> list[dict[str, Any]]:
    """Microseconds of a decision and its reward, the least of some rounds."""
    params = nk.mlp_params(jax.random.key(0), SIZES)
    model = nk.static_model(nk.mlp_apply, params, nk.families.Bernoulli())
    context = jnp.asarray(np.random.default_rng(0).normal(size=SIZES[0]), jnp.float32)
    keys = jax.random.split(jax.random.key(0), STEPS)
    found = []
    makers: dict[str, Any] = {
        "one filter, Kronecker": lambda rewards: nk.online(rewards, prior_cov=0.02, curvature=nk.kronecker()),
        "default, a bank of two": None,
    }
    for name, learner in makers.items():
        bandit = nk.bandit(model, arms=SIZES[-1], learner=learner)

        def whole(state: Any, keys: Any, bandit: Any = bandit) -> Any:
            def turn(state: Any, key: Any) -> Any:
                decision = bandit.act(state, context, key)
                return bandit.learn(state, context, decision.arm, 1.0), decision.probability

            return jax.lax.scan(turn, state, keys)

        state, loop = bandit.init(), compile_loop(whole)
        in_loop = _least(lambda loop=loop, state=state: jax.block_until_ready(loop(state, keys))) / STEPS

        def calls(bandit: Any = bandit, state: Any = state) -> None:
            for turn in range(100):
                decision = bandit.act(state, context, keys[turn])
                jax.block_until_ready(bandit.learn(state, context, decision.arm, 1.0))

        by_call = _least(calls) / 100
        report(f"{name}: {in_loop * 1e6:.0f} microseconds in a loop, {by_call * 1e6:.0f} by calls")
        found.append(
            {
                "learner": name,
                "parameters": model.size,
                "loop_microseconds": in_loop * 1e6,
                "calls_microseconds": by_call * 1e6,
                "one_function": loop.is_one_function,
            }
        )
    return found


def _least(work: Callable[[], Any]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)
