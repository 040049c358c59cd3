"""Counts and positive numbers that are large, heavy-tailed or mostly zero."""

from collections.abc import Callable

import numpy as np

from benchmarks.hostile.base import ROWS, Maker, Random, Rows, inputs, replaced, time
from benchmarks.streams.stream import numbered

MIDDLE = ROWS // 2


def _made(task: str, draw: Callable[[Random, np.ndarray], np.ndarray]) -> Maker:
    def make(rng: Random) -> Rows:
        x = inputs(rng)
        targets = draw(rng, 0.5 * x[:, 0])
        return Rows(numbered(x), targets.astype(int) if task == "count" else targets, ("--task", task))

    return make


COUNTS: dict[str, Maker] = {
    "counts of 1e9": _made("count", lambda rng, z: rng.poisson(1e9 * np.exp(0.1 * z))),
    "counts that grow by 1e6": _made("count", lambda rng, z: rng.poisson(2 * np.exp(z) * 1e6 ** time())),
    "one count of 1e6": _made("count", lambda rng, z: replaced(rng.poisson(3 * np.exp(z)), MIDDLE, 1e6)),
    "counts, nine in ten zero": _made(
        "count", lambda rng, z: np.where(rng.uniform(size=ROWS) < 0.9, 0, rng.poisson(20 * np.exp(z)))
    ),
    "counts, all zero but ten": _made(
        "count", lambda rng, z: replaced(np.zeros(ROWS), rng.choice(ROWS, 10, replace=False), 3)
    ),
    "counts spread like a lognormal": _made("count", lambda rng, z: np.floor(rng.lognormal(2 + z, 2))),
}
POSITIVE: dict[str, Maker] = {
    "positive, lognormal sigma 3": _made("positive", lambda rng, z: rng.lognormal(z, 3)),
    "positive, one of 1e12": _made("positive", lambda rng, z: replaced(rng.lognormal(z, 0.5), MIDDLE, 1e12)),
    "positive, one of 1e-12": _made("positive", lambda rng, z: replaced(rng.lognormal(z, 0.5), MIDDLE, 1e-12)),
    "positive, scale grows by 1e6": _made("positive", lambda rng, z: rng.lognormal(z, 0.5) * 1e6 ** time()),
    "positive, of size 1e-9": _made("positive", lambda rng, z: 1e-9 * rng.lognormal(z, 0.5)),
    "positive, first ten equal": _made("positive", lambda rng, z: replaced(rng.lognormal(z, 0.5), slice(10), 1.0)),
}
