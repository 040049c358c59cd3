"""The problems of numbers that the rules of exploration were chosen on; their seeds begin at 1,000.

All draws of a problem run side by side. Rivals have their best setting for the problem in hindsight.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bandits import ours, rivals
from benchmarks.bandits.problems import ROWS, Draw, Problem, linear_draw, wheel_means

FIRST_SEED = 1_000


def wheel(seed: int, delta: float, good: float, low: float, safe: float, noise: float) -> Draw:
    """The wheel with other rewards: outside the radius delta one arm pays `good`; one is always `safe`."""
    rng = np.random.default_rng(seed)
    contexts, means = wheel_means(rng, delta, good, low, safe)
    return contexts, means + noise * rng.normal(size=means.shape), means


def friedman(seed: int) -> Draw:
    """Four arms: Friedman's function of the ten numbers, in another order for each arm; noise 1."""
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(size=(ROWS, 10))

    def function(z: np.ndarray) -> np.ndarray:
        return 10 * np.sin(np.pi * z[:, 0] * z[:, 1]) + 20 * (z[:, 2] - 0.5) ** 2 + 10 * z[:, 3] + 5 * z[:, 4]

    means = np.stack([function(contexts[:, rng.permutation(10)]) for _ in range(4)], axis=1)
    return contexts, means + rng.normal(size=means.shape), means


def quadratic(seed: int) -> Draw:
    """Five arms, each a quadratic form of four numbers; noise 0.5."""
    rng = np.random.default_rng(seed)
    contexts, forms, weights = rng.normal(size=(ROWS, 4)), rng.normal(size=(5, 4, 4)) / 4, rng.normal(size=(5, 4)) / 2
    means = contexts @ weights.T + np.einsum("ni,kij,nj->nk", contexts, forms, contexts)
    return contexts, means + 0.5 * rng.normal(size=means.shape), means


def without_context(seed: int) -> Draw:
    """Ten arms that pay a number each, whatever the five numbers of the context; noise 1."""
    rng = np.random.default_rng(seed)
    contexts, means = rng.normal(size=(ROWS, 5)), np.tile(rng.normal(size=10), (ROWS, 1))
    return contexts, means + rng.normal(size=means.shape), means


def prices(seed: int) -> Draw:
    """Four prices: a sale is rarer the higher the price, depends on three numbers, and pays the price."""
    rng = np.random.default_rng(seed)
    contexts, weights, price = rng.normal(size=(ROWS, 3)), 0.5 * rng.normal(size=(4, 3)), 5 * 1.5 ** np.arange(4)
    chance = 1 / (1 + np.exp(-(contexts @ weights.T) + 1.5 + 0.4 * np.arange(4)))
    return contexts, (rng.uniform(size=chance.shape) < chance) * price, chance * price


def classes_with_noise(seed: int, name: str) -> Draw:
    """A table of classes: the right arm pays 1, noise 0.3."""
    rng = np.random.default_rng(seed)
    if name == "made":
        from sklearn.datasets import make_classification

        sizes: dict[str, Any] = {"n_features": 6, "n_informative": 5, "n_redundant": 0, "n_classes": 5}
        inputs, labels = make_classification(ROWS, **sizes, random_state=seed)
    else:
        from river.datasets import synth

        source = synth.RandomRBF(seed_model=seed, seed_sample=seed, n_classes=4, n_features=6, n_centroids=30)
        rows = list(source.take(ROWS))
        inputs, labels = np.array([[*map(float, row.values())] for row, _ in rows]), np.array([y for _, y in rows])
    means = (np.asarray(labels, int)[:, None] == np.arange(int(np.max(labels)) + 1)).astype(float)
    return np.asarray(inputs), means + 0.3 * rng.normal(size=means.shape), means


PROBLEMS: dict[str, Callable[[int], Draw]] = {
    "linear": linear_draw,
    "linear, around 100": lambda seed: linear_draw(seed, numbers=5, level=100.0),
    "linear, Student's noise": lambda seed: linear_draw(seed, numbers=5, freedom=2.5),
    "no context, ten arms": without_context,
    "prices": prices,
    "quadratic": quadratic,
    "Friedman": friedman,
    "RandomRBF, noise": lambda seed: classes_with_noise(seed, "RandomRBF"),
    "made, noise": lambda seed: classes_with_noise(seed, "made"),
    "wheel 0.8 (50, 1, 1.2)": lambda seed: wheel(seed, 0.8, 50.0, 1.0, 1.2, 0.01),
    "wheel 0.9 (20, 1, 1.5)": lambda seed: wheel(seed, 0.9, 20.0, 1.0, 1.5, 0.1),
    "wheel 0.9 (8, -1, 0)": lambda seed: wheel(seed, 0.9, 8.0, -1.0, 0.0, 0.3),
    "wheel 0.93 (30, 1, 1.3)": lambda seed: wheel(seed, 0.93, 30.0, 1.0, 1.3, 0.01),
    "wheel 0.97 (50, 1, 1.2)": lambda seed: wheel(seed, 0.97, 50.0, 1.0, 1.2, 0.01),
}


def rows(report: Callable[[str], None], only: str, seeds: int) -> list[dict[str, Any]]:
    """Mean regret over the draws of each problem: of natkal at its defaults, with its standard error, and of rivals."""
    found = []
    for name, make in PROBLEMS.items():
        if only.lower() not in name.lower():
            continue
        each = [FIRST_SEED + number for number in range(seeds)]
        draws = [Problem(name, *make(seed), "number") for seed in each]
        taken = ours.arms_taken(draws, each)
        regrets = np.array([one.regrets(arms).sum() for one, arms in zip(draws, taken, strict=True)])
        error = float(regrets.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else float("nan")
        own = {"problem": name, "draws": seeds, "natkal": float(regrets.mean()), "standard error": error}
        found.append({**own, **_best_rivals(draws)})
        report(f"{name}: {regrets.mean():,.0f}")
    return found


def _best_rivals(problems: list[Problem]) -> dict[str, float]:
    makers = {
        "LinUCB": lambda problem: rivals.linear_in_jax(problem, "LinUCB"),
        "LinTS": lambda problem: rivals.linear_in_jax(problem, "LinTS"),
        "neural-linear": rivals.neural_linear,
    }
    found = {}
    for name, make in makers.items():
        regrets = [{key: one.regrets(arms).sum() for key, arms in make(one).items()} for one in problems]
        found[name] = min(float(np.mean([own[setting] for own in regrets])) for setting in regrets[0])
    return found
