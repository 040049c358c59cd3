"""`python -m benchmarks hostile`: streams made to break a learner, through `natkal learn` at its defaults.

A stream passes if the run ends well, rejects at most 1 percent of its rows, and is not far behind its own baseline:
mean absolute error at most 1.1 of the baseline's (numbers), log loss at most the baseline's + 0.02 (all). A constant
baseline cannot be beaten on some of these streams; it must not be lost to.
"""

import csv
import math
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hostile import classes, counts, features, targets
from benchmarks.hostile.base import Maker
from benchmarks.process import learn
from benchmarks.streams.stream import Stream

GROUPS: dict[str, dict[str, Maker]] = {
    "outliers": targets.OUTLIERS,
    "beginnings": targets.BEGINNINGS,
    "scales": targets.SCALES,
    "shapes": targets.SHAPES,
    "features": features.FEATURES,
    "columns": features.COLUMNS,
    "drifts": features.DRIFTS,
    "counts": counts.COUNTS,
    "positive": counts.POSITIVE,
    "orders": classes.ORDERS,
    "labels": classes.LABELS,
}
PARTS = tuple(GROUPS)
OPTIONS = {"only": ("", "only the streams whose name has this in it")}
LARGEST_RATIO, LARGEST_EXCESS, LARGEST_REJECTED = 1.1, 0.02, 0.01
NO_ERROR = 1e-5
"""An error below this share of the largest target counts as none: a constant target leaves the baseline without any."""
LIMIT_S = 300.0
COLUMNS = ("stream", "task", "error_ratio", "loss", "baseline_loss", "accuracy", "reach", "seconds", "passed", "why")


def run_part(part: str, report: Callable[[str], None], only: str = "") -> dict[str, Any]:
    """The streams of one group."""
    rows = []
    for name, make in GROUPS[part].items():
        if only not in name:
            continue
        rows.append(run(name, make))
        report(f"{name}: {'passed' if rows[-1]['passed'] else 'failed, ' + rows[-1]['why']}")
    return {"rows": rows, "passed": all(row["passed"] for row in rows)}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """A table for each group, and the count of those that passed."""
    found = [(part, result["rows"], COLUMNS) for part, result in results.items() if result["rows"]]
    rows = [row for result in results.values() for row in result["rows"]]
    total = {"passed": sum(row["passed"] for row in rows), "streams": len(rows)}
    return [*found, ("All", [total], tuple(total))]


def run(name: str, make: Maker) -> dict[str, Any]:
    """One stream through the command line."""
    made = make(np.random.default_rng(zlib.crc32(name.encode())))
    with tempfile.TemporaryDirectory() as folder:
        data, said = Path(folder) / "rows.csv", Path(folder) / "said.csv"
        Stream(name, "regression", made.columns, made.targets).write(data)
        answer, ended = learn(data, *made.options, "--predictions", str(said), limit_s=LIMIT_S)
        row = dict.fromkeys(COLUMNS, "") | {"stream": name, "seconds": round(ended.seconds, 1), "passed": False}
        if answer is None:
            return {**row, "why": ended.complaint}
        return row | judged(answer, made.targets) | {"reach": reach(said)}


def judged(answer: dict[str, Any], given: np.ndarray) -> dict[str, Any]:
    """Figures of a run beside its baseline's, and whether it passed."""
    target = answer["targets"][0]
    if not target["rows"]:
        return {"task": target["task"], "why": "no row was predicted"}
    found: dict[str, Any] = {"task": target["task"], "loss": target["log_loss"]}
    found["baseline_loss"] = target["baseline_log_loss"]
    failures = []
    if "mean_absolute_error" in target:
        tiny = NO_ERROR * float(np.nanmax(np.abs(given.astype(float))))
        error, base = target["mean_absolute_error"], target["baseline_mean_absolute_error"]
        found["error_ratio"] = max(error, tiny) / max(base, tiny) if error is not None else math.nan
        if not found["error_ratio"] <= LARGEST_RATIO:
            failures.append("error")
    else:
        found["accuracy"] = target["accuracy"]
    if not (_number(found["loss"]) <= _number(found["baseline_loss"]) + LARGEST_EXCESS):
        failures.append("log loss")
    counts = answer["rows"]
    if counts["rejected"] > LARGEST_REJECTED * counts["read"]:
        failures.append(f"{counts['rejected']} rows rejected")
    return {**found, "passed": not failures, "why": ", ".join(failures)}


def _number(value: float | None) -> float:
    """JSON has no infinity and no NaN: null stands for them."""
    return math.nan if value is None else value


def reach(path: Path) -> float | str:
    """The largest prediction or limit of an interval over the largest target, in absolute values; "" for classes."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name == "predicted" or name.startswith(("low_", "high_"))]
    if len(names) == 1:
        return ""
    largest = {name: max((abs(float(row[name])) for row in rows if row[name]), default=0.0) for name in rows[0]}
    return max(largest[name] for name in names) / max(largest["observed"], NO_ERROR)
