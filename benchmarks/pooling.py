"""`python -m benchmarks pooling`: a model for each key, one model for all, and models that share a learned prior."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.size import sized
from natkal.settings.options import Options
from natkal.tables.engine.pooled_table import PooledTable
from natkal.tables.table import TableLearner, TargetShape

PARTS = ("classes", "numbers")
OPTIONS = {
    "keys": (sized(1000, 10), "how many keys"),
    "model": ("linear", "the model of all three: linear, or auto"),
    "spread": (0.7, "deviation of a weight of a key from the population's"),
}
SIZES = ((5, 10), (10, 20), (20, 50), (50, 100), (100, 200), (200, 500))
"""Rows of a key, from and up to."""
FEATURES = 8
BLOCK, FIRST_ROWS = 4096, 1000
Report = Callable[[str], None]


def panel(part: str, keys: int, spread: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys (n,) with 5 to 500 rows each, in a random order, inputs (n, d) and targets (n, 1).

    The weights of key k are mu + spread z_k; the target is the sign of a logistic draw, or has unit noise.
    """
    rng = np.random.default_rng(0)
    counts = np.exp(rng.uniform(np.log(5), np.log(500), keys)).astype(int)
    weights = rng.normal(size=FEATURES + 1) + spread * rng.normal(size=(keys, FEATURES + 1))
    ids = rng.permutation(np.repeat(np.arange(keys), counts))
    inputs = rng.normal(size=(len(ids), FEATURES))
    score = np.sum(inputs * weights[ids, :-1], axis=1) + weights[ids, -1]
    if part == "classes":
        targets = (rng.random(len(ids)) < 1 / (1 + np.exp(-score))).astype(float)
    else:
        targets = score + rng.normal(size=len(ids))
    return ids, inputs, targets[:, None]


def losses(part: str, kind: str, model: str, ids: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The log loss of each row, predicted before it is learned."""
    options = Options(model=model, past="none")
    target = TargetShape("binary", 2, 2) if part == "classes" else TargetShape("regression")
    keyed = kind != "one model"
    make = PooledTable if kind == "pooled" else TableLearner
    learner = make(options, [True] * FEATURES, [target], keyed=keyed, limits=False)
    names = [str(own) for own in ids] if keyed else []
    if isinstance(learner, PooledTable):
        learner.know_first_rows(inputs[:FIRST_ROWS], targets[:FIRST_ROWS], names[:FIRST_ROWS])
    found = []
    for first in range(0, len(ids), BLOCK):
        part_of = slice(first, first + BLOCK)
        rows = learner.rows(inputs[part_of], targets[part_of], keys=names[part_of])
        found.append(-learner.learn(rows, keys=names[part_of]).wait().targets[0].log_prob)
    return np.concatenate(found)


def run_part(part: str, report: Report, keys: int, model: str, spread: float) -> dict[str, Any]:
    """Log loss by the number of rows that a key has in all."""
    ids, inputs, targets = panel(part, keys, spread)
    kinds = ("pooled", "model per key", "one model")
    found = {}
    for kind in kinds:
        report(f"pooling: {part}, {len(ids):,} rows of {keys:,} keys, {kind}")
        found[kind] = losses(part, kind, model, ids, inputs, targets)
    counts = np.bincount(ids)[ids]
    rows = []
    for low, high in SIZES:
        own = (counts >= low) & (counts < high)
        rows.append(
            {"rows_of_a_key": f"{low} to {high - 1}", "keys": len(np.unique(ids[own]))}
            | {kind.replace(" ", "_"): float(found[kind][own].mean()) for kind in kinds}
        )
    best = [row["pooled"] < min(row["model_per_key"], row["one_model"]) for row in rows]
    return {"rows": rows, "passed": all(best)}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    titles = {"classes": "Log loss, two classes", "numbers": "Log loss, a number with unit noise"}
    return [(titles[part], found["rows"], tuple(found["rows"][0])) for part, found in results.items()]
