"""Streams from generators: river's, 10,000 rows each, and Friedman's first function.

Seed 0 everywhere. Settings are river's defaults unless a line here says otherwise.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.streams.stream import Stream, numbered, of_rows

ROWS = 10_000
CLASSES_ROWS = 20_000
FRIEDMAN_ROWS = 40_768
FRIEDMAN_DRIFTS = (3_500, 7_000)
GENERATORS: dict[str, dict[str, Any]] = {
    "Agrawal": {"classification_function": 4, "seed": 0},
    "Hyperplane": {"n_drift_features": 5, "mag_change": 0.001, "seed": 0},
    "LED": {"noise_percentage": 0.1, "irrelevant_features": True, "seed": 0},
    "RandomRBF": {"n_classes": 4, "seed_model": 0, "seed_sample": 0},
    "RandomTree": {"n_classes": 3, "seed_tree": 0, "seed_sample": 0},
    "SEA": {"noise": 0.1, "seed": 0},
    "Sine": {"classification_function": 2, "has_noise": True, "seed": 0},
    "STAGGER": {"classification_function": 1, "seed": 0},
    "Waveform": {"has_noise": True, "seed": 0},
    "Mv": {"seed": 0},
    "FriedmanDrift": {"drift_type": "gra", "position": FRIEDMAN_DRIFTS, "transition_window": 1_000, "seed": 0},
}
"""river's generators and their arguments."""


def _generator(name: str) -> Stream:
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    columns, targets = of_rows(islice(getattr(synth, name)(**GENERATORS[name]), ROWS))
    drifts = FRIEDMAN_DRIFTS if name == "FriedmanDrift" else ()
    if name in ("Mv", "FriedmanDrift"):
        return Stream(f"synth {name}", "regression", columns, np.array(targets, float), drifts=drifts)
    return Stream(f"synth {name}", "classification", columns, np.array(targets, int))


def friedman() -> Stream:
    """y = 10 sin(pi x0 x1) + 20 (x2 - 1/2)^2 + 10 x3 + 5 x4 + N(0, 1), ten uniform inputs (Friedman 1991, 4.3)."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(FRIEDMAN_ROWS, 10))
    mean = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return Stream("friedman", "regression", numbered(x), mean + rng.normal(size=FRIEDMAN_ROWS))


def twenty_six() -> Stream:
    """26 classes, 16 whole-number columns of 0 to 15, 20,000 rows: two clusters for each class."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(0, 15, size=(26, 2, 16))
    targets = rng.integers(26, size=CLASSES_ROWS)
    inputs = centres[targets, rng.integers(2, size=CLASSES_ROWS)] + rng.normal(scale=3.0, size=(CLASSES_ROWS, 16))
    labels = tuple(chr(ord("A") + number) for number in range(26))
    whole = np.clip(np.round(inputs), 0, 15)
    return Stream("twenty-six classes", "classification", numbered(whole), targets, (64,), labels=labels)


GENERATED: dict[str, Callable[[], Stream]] = {
    f"synth {name}": lambda name=name: _generator(name) for name in GENERATORS
} | {"friedman": friedman, "twenty-six classes": twenty_six}
