"""Small streams of each kind, for the tests of what benchmarks rest on."""

import numpy as np
from benchmarks.streams.stream import Stream, numbered


def made_up(kind: str, rows: int = 60) -> Stream:
    """Three inputs, and classes, numbers or counts that depend on them."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, 3))
    targets = {
        "classification": rng.integers(0, 3, rows),
        "regression": 5 + 2 * inputs[:, 0] + rng.normal(size=rows),
        "count": rng.poisson(np.exp(0.5 * inputs[:, 0])),
    }[kind]
    return Stream(kind, kind, numbered(inputs), targets, (2,))  # pyright: ignore[reportArgumentType]
