"""Bandit problems: contexts, what each arm would pay, and what the best arm pays on average."""

from typing import NamedTuple

import numpy as np

ROWS = 5_000
"""The most rows of a problem; a shorter table is passed several times, in a new order each time."""
WHEEL_ROWS = 10_000


class Problem(NamedTuple):
    """Contexts (n, d), what each arm pays and what it pays on average (n, K), and the kind of a reward."""

    name: str
    contexts: np.ndarray
    rewards: np.ndarray
    means: np.ndarray
    kind: str

    def regrets(self, arms: np.ndarray) -> np.ndarray:
        """Of each of the first rows: the best expected reward less that of the arm that was taken."""
        means = self.means[: len(arms)]
        return means.max(axis=1) - means[np.arange(len(arms)), arms]


def classified(name: str, inputs: np.ndarray, classes: np.ndarray, *, order: bool = True, seed: int = 0) -> Problem:
    """A table of classes: the arms are the classes, the right one pays 1."""
    names, numbers = np.unique(classes, return_inverse=True)
    rng = np.random.default_rng(seed)
    if order:
        rows = np.concatenate([rng.permutation(len(numbers)) for _ in range(-(-ROWS // len(numbers)))])[:ROWS]
    else:
        rows = np.arange(min(ROWS, len(numbers)))
    rewards = (numbers[rows][:, None] == np.arange(len(names))[None]).astype(float)
    return Problem(name, inputs[rows].astype(float), rewards, rewards, "binary")


def digits(seed: int) -> Problem:
    from sklearn.datasets import load_digits

    return classified("digits", *load_digits(return_X_y=True), seed=seed)


def river_table(name: str, seed: int) -> Problem:
    from river import datasets

    rows = list(getattr(datasets, name)())
    inputs = np.array([[float(value) for value in row.values()] for row, _ in rows])
    return classified(name, inputs, np.array([str(label) for _, label in rows]), seed=seed)


def drifting(name: str, seed: int) -> Problem:
    """river's generators: classes that move (RandomRBFDrift), and a concept that is replaced in the middle (SEA)."""
    from river.datasets import synth

    if name == "RBF drift":
        stream = synth.RandomRBFDrift(
            seed_model=seed,
            seed_sample=seed,
            n_classes=5,
            n_features=10,
            n_centroids=20,
            n_drift_centroids=20,
            change_speed=0.001,
        )
        rows = list(stream.take(ROWS))
    else:
        first, second = synth.SEA(variant=0, seed=seed), synth.SEA(variant=3, seed=seed + 1)
        rows = [*first.take(ROWS // 2), *((row, not label) for row, label in second.take(ROWS // 2))]
    inputs = np.array([[float(value) for value in row.values()] for row, _ in rows])
    return classified(name, inputs, np.array([int(label) for _, label in rows]), order=False)


Draw = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Contexts (n, d), what each arm pays (n, K), and what it pays on average."""


def linear_draw(seed: int, numbers: int = 10, level: float = 0.0, freedom: float | None = None) -> Draw:
    """Five arms, each linear in the context, around `level`; noise 0.5, normal or Student's."""
    rng = np.random.default_rng(seed)
    weights, contexts = rng.normal(size=(5, numbers)) / np.sqrt(numbers), rng.normal(size=(ROWS, numbers))
    means = level + contexts @ weights.T
    noise = rng.normal(size=means.shape) if freedom is None else rng.standard_t(freedom, size=means.shape)
    return contexts, means + 0.5 * noise, means


def linear(seed: int) -> Problem:
    """Five arms, each linear in ten numbers, noise 0.5."""
    return Problem("linear", *linear_draw(seed), "number")


def wheel_means(
    rng: np.random.Generator, delta: float, good: float, low: float, safe: float
) -> tuple[np.ndarray, np.ndarray]:
    """Points of a disc, and what five arms pay there: four `good` in their quarter outside delta, one always `safe`."""
    points = []
    while len(points) < WHEEL_ROWS:
        point = rng.uniform(-1, 1, size=2)
        if point @ point <= 1:
            points.append(point)
    contexts = np.array(points)
    means = np.full((WHEEL_ROWS, 5), low)
    means[:, 4] = safe
    outside = np.linalg.norm(contexts, axis=1) > delta
    quarter = 2 * (contexts[:, 0] < 0) + (contexts[:, 1] < 0)
    means[outside, quarter[outside]] = good
    return contexts, means


def wheel(seed: int, delta: float = 0.95) -> Problem:
    """The wheel of Riquelme, Tucker and Snoek: four arms pay 50, each in its part of the outer tenth of a disc."""
    rng = np.random.default_rng(seed)
    contexts, means = wheel_means(rng, delta, good=50.0, low=1.0, safe=1.2)
    rewards = means + 0.01 * rng.normal(size=means.shape)
    return Problem("wheel 0.95", contexts, rewards, means, "number")


PROBLEMS = {
    "digits": digits,
    "ImageSegments": lambda seed: river_table("ImageSegments", seed),
    "Phishing": lambda seed: river_table("Phishing", seed),
    "RBF drift": lambda seed: drifting("RBF drift", seed),
    "SEA drift": lambda seed: drifting("SEA drift", seed),
    "linear": linear,
    "wheel": wheel,
}
