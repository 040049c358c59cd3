"""The arms that other bandits take, each over a grid of settings; contexts are standardised in hindsight."""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bandits.problems import Problem

ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0)
VW_EXPLORERS = ("--bag 5", "--cover 3", "--squarecb", "--rnd 3", "--epsilon 0.05", "--epsilon 0.1")
VW_RATES = (0.1, 0.5, 2.0)
NEURAL_RATES = (1e-3, 1e-2)
HIDDEN = 50
MABWISER_ROWS = 3_000
"""mabwiser takes milliseconds a row: it is run for so many rows, and natkal is compared on them too."""


def standardised(problem: Problem) -> np.ndarray:
    """Contexts of mean 0 and deviation 1, and a constant."""
    deviation = problem.contexts.std(axis=0)
    scaled = (problem.contexts - problem.contexts.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1)


def mabwiser(problem: Problem, kind: str, alpha: float) -> np.ndarray:
    """LinUCB or LinTS of mabwiser, one row at a time."""
    from mabwiser.mab import MAB, LearningPolicy

    policy = LearningPolicy.LinUCB(alpha=alpha) if kind == "LinUCB" else LearningPolicy.LinTS(alpha=alpha)
    arms = list(range(problem.rewards.shape[1]))
    contexts, rng = standardised(problem), np.random.default_rng(0)
    learner, taken = MAB(arms, policy, seed=0), []
    for row in range(min(len(contexts), MABWISER_ROWS)):
        context = contexts[row : row + 1]
        arm = int(rng.integers(len(arms))) if row < len(arms) else int(learner.predict(context))  # pyright: ignore
        taken.append(arm)
        (learner.fit if row == 0 else learner.partial_fit)([arm], [problem.rewards[row, arm]], context)
    return np.array(taken)


def linear_in_jax(problem: Problem, kind: str) -> dict[str, np.ndarray]:
    """LinUCB and LinTS with a ridge regression for each arm (Li et al., Agrawal and Goyal), all alphas in one scan."""
    contexts, rewards = jnp.asarray(standardised(problem), jnp.float32), jnp.asarray(problem.rewards, jnp.float32)
    width, arms = contexts.shape[1], rewards.shape[1]

    def run(alpha: Any) -> Any:
        def turn(state: Any, row: Any) -> Any:
            inverse, shift = state
            context, paid, key = row
            weights = jnp.einsum("kij,kj->ki", inverse, shift)
            images = inverse @ context
            mean, variance = weights @ context, images @ context
            spread = alpha * jnp.sqrt(jnp.maximum(variance, 0.0))
            score = mean + (spread if kind == "LinUCB" else spread * jax.random.normal(key, (arms,)))
            arm = jnp.argmax(score + 1e-6 * jax.random.uniform(key, (arms,)))
            own = images[arm]
            inverse = inverse.at[arm].add(-jnp.outer(own, own) / (1 + variance[arm]))
            return (inverse, shift.at[arm].add(paid[arm] * context)), arm

        start = jnp.tile(jnp.eye(width), (arms, 1, 1)), jnp.zeros((arms, width))
        keys = jax.random.split(jax.random.key(0), len(contexts))
        return jax.lax.scan(turn, start, (contexts, rewards, keys))[1]

    found = jax.jit(jax.vmap(run))(jnp.asarray(ALPHAS, jnp.float32))
    return {f"alpha {alpha:g}": np.asarray(arms) for alpha, arms in zip(ALPHAS, found, strict=True)}


def neural_linear(problem: Problem) -> dict[str, np.ndarray]:
    """A network trained by Adam on the arm that was taken, and Thompson sampling on its last hidden layer."""
    contexts, rewards = jnp.asarray(standardised(problem), jnp.float32), jnp.asarray(problem.rewards, jnp.float32)
    width, arms = contexts.shape[1], rewards.shape[1]
    scale = float(problem.rewards.std()) or 1.0

    def features(params: Any, context: Any) -> Any:
        return jnp.append(jax.nn.relu(context @ params["first"] + params["bias"]), 1.0)

    def run(setting: Any) -> Any:
        alpha, rate = setting

        def turn(state: Any, row: Any) -> Any:
            params, moments, inverse, shift, count = state
            context, paid, key = row
            seen = features(params, context)
            images = inverse @ seen
            mean, variance = jnp.einsum("kij,kj,i->k", inverse, shift, seen), images @ seen
            noise = alpha * jnp.sqrt(jnp.maximum(variance, 0.0)) * jax.random.normal(key, (arms,))
            arm = jnp.argmax(mean + noise)
            reward = paid[arm] / scale

            def loss(params: Any) -> Any:
                return jnp.square(features(params, context) @ params["last"][:, arm] - reward)

            gradient = jax.grad(loss)(params)
            count = count + 1
            moments = jax.tree.map(
                lambda pair, g: (0.9 * pair[0] + 0.1 * g, 0.999 * pair[1] + 0.001 * g * g),
                moments,
                gradient,
                is_leaf=lambda node: isinstance(node, tuple),
            )
            params = jax.tree.map(
                lambda p, pair: p - rate * pair[0] / (1 - 0.9**count) / (jnp.sqrt(pair[1] / (1 - 0.999**count)) + 1e-8),
                params,
                moments,
                is_leaf=lambda node: isinstance(node, tuple),
            )
            own = images[arm]
            inverse = inverse.at[arm].add(-jnp.outer(own, own) / (1 + variance[arm]))
            return (params, moments, inverse, shift.at[arm].add(reward * seen), count), arm

        keys = jax.random.split(jax.random.key(0), 2)
        params = {
            "first": jax.random.normal(keys[0], (width, HIDDEN)) / np.sqrt(width),
            "bias": jnp.zeros(HIDDEN),
            "last": jnp.zeros((HIDDEN + 1, arms)),
        }
        moments = jax.tree.map(lambda leaf: (jnp.zeros_like(leaf), jnp.zeros_like(leaf)), params)
        inverse = jnp.tile(jnp.eye(HIDDEN + 1), (arms, 1, 1))
        start = params, moments, inverse, jnp.zeros((arms, HIDDEN + 1)), jnp.zeros(())
        rows = (contexts, rewards, jax.random.split(keys[1], len(contexts)))
        return jax.lax.scan(turn, start, rows)[1]

    grid = [(alpha, rate) for alpha in ALPHAS for rate in NEURAL_RATES]
    found = jax.jit(jax.vmap(run))(tuple(jnp.asarray(part, jnp.float32) for part in zip(*grid, strict=True)))
    names = [f"alpha {alpha:g}, rate {rate:g}" for alpha, rate in grid]
    return {name: np.asarray(arms) for name, arms in zip(names, found, strict=True)}


def vowpal(problem: Problem, explorer: str, rate: float) -> np.ndarray:
    """Vowpal Wabbit's --cb_explore_adf; rewards become costs, scaled to [0, 1] in hindsight."""
    from vowpalwabbit import Workspace

    arms = problem.rewards.shape[1]
    low, high = problem.rewards.min(), problem.rewards.max()
    contexts, rng = standardised(problem)[:, :-1], np.random.default_rng(0)
    workspace = Workspace(f"--cb_explore_adf {explorer} -q CA -l {rate} --quiet --random_seed 1")
    taken = []
    for context, rewards in zip(contexts, problem.rewards, strict=True):
        shared = "shared |C " + " ".join(f"x{place}:{value:.5g}" for place, value in enumerate(context))
        lines = [f"|A a{arm}" for arm in range(arms)]
        chances = np.maximum(np.array(workspace.predict([shared, *lines])), 0.0)
        arm = int(rng.choice(arms, p=chances / chances.sum()))
        taken.append(arm)
        cost = 1 - (rewards[arm] - low) / (high - low)
        lines[arm] = f"0:{cost:.6g}:{max(chances[arm] / chances.sum(), 1e-6):.6g} {lines[arm]}"
        workspace.learn([shared, *lines])
    workspace.finish()
    return np.array(taken)


def all_rivals(problem: Problem, report: Callable[[str], None]) -> dict[str, dict[str, np.ndarray]]:
    """The arms that each rival takes with each of its settings; rivals that are not installed are left out."""
    found: dict[str, dict[str, np.ndarray]] = {
        "LinUCB": linear_in_jax(problem, "LinUCB"),
        "LinTS": linear_in_jax(problem, "LinTS"),
        "neural-linear": neural_linear(problem),
    }
    if importlib.util.find_spec("mabwiser"):
        for kind in ("LinUCB", "LinTS"):
            report(f"  mabwiser {kind}")
            found[f"mabwiser {kind}"] = {f"alpha {alpha:g}": mabwiser(problem, kind, alpha) for alpha in ALPHAS[1:4]}
    if importlib.util.find_spec("vowpalwabbit"):
        report("  Vowpal Wabbit")
        found["Vowpal Wabbit"] = {
            f"{explorer} -l {rate:g}": vowpal(problem, explorer, rate) for explorer in VW_EXPLORERS for rate in VW_RATES
        }
    return found
