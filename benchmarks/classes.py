"""`python -m benchmarks classes`: seconds per row of the default learner against the number of classes.

Rows of six numbers, one centre for each class. Each part compiles the learner's loop on a first block and times the
next ones; every member runs, as in the first rows of a stream. The exponent is that of the cost in the number of
classes since the line before; it must stay below 3.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from natkal.settings.options import Options
from natkal.tables.table import TableLearner, TargetShape

CLASSES = {"10": 10, "120": 120, "1000": 1_000}
PARTS = tuple(CLASSES)
FEATURES, BLOCK, BLOCKS = 6, 16, 4


def run_part(part: str, report: Callable[[str], None]) -> dict[str, Any]:
    """The best block's time per row, and what the rows were predicted with."""
    classes = CLASSES[part]
    report(f"classes: {classes}")
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(classes, FEATURES))
    learner = TableLearner(Options(), [True] * FEATURES, [TargetShape("multiclass", classes, classes)], limits=False)
    times, started = [], time.perf_counter()
    for _ in range(BLOCKS + 1):
        targets = rng.integers(0, classes, BLOCK)
        inputs = centres[targets] + rng.normal(size=(BLOCK, FEATURES))
        learner.learn(learner.rows(inputs, targets[:, None].astype(float))).wait()
        times.append(time.perf_counter() - started)
        started = time.perf_counter()
    seconds = min(times[1:]) / BLOCK
    return {"classes": classes, "members": len(learner.member_names) - 1, "milliseconds": 1e3 * seconds,
            "first_block_seconds": times[0], "parameters": learner.parameters}  # fmt: skip


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """A line for each number of classes, with the exponent of the cost since the line before."""
    rows: list[dict[str, Any]] = []
    for result in results.values():
        exponent = None
        if rows:
            grown = result["milliseconds"] / rows[-1]["milliseconds"]
            exponent = round(float(np.log(grown) / np.log(result["classes"] / rows[-1]["classes"])), 2)
        rows.append({**result, "exponent": exponent})
    columns = ("classes", "members", "parameters", "milliseconds", "exponent", "first_block_seconds")
    return [("milliseconds per row, default learner, all members running", rows, columns)]
