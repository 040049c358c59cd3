"""natkal at its defaults: `natkal learn FILE --target y`, in a process of its own."""

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.process import learn
from benchmarks.streams.rivals import UNSCORED_ROWS
from benchmarks.streams.scores import errors
from benchmarks.streams.stream import Stream

LIMIT_S = 1800.0
TASKS = {"binary": "classification", "multiclass": "classification", "count": "count"}
"""The kind of each task; all others are regressions."""


def run(stream: Stream, *options: str) -> dict[str, Any]:
    """The scores of one run. A run that fails has `failed`, a sentence, and no scores."""
    with tempfile.TemporaryDirectory() as name:
        data, said = Path(name) / "rows.csv", Path(name) / "said.csv"
        stream.write(data)
        answer, ended = learn(data, *options, "--predictions", str(said), limit_s=LIMIT_S)
        found: dict[str, Any] = {"seconds": ended.seconds, "peak_mb": ended.peak_mb}
        if answer is None:
            return {**found, "failed": ended.complaint}
        target = answer["targets"][0]
        found |= {"task": target["task"], "log_loss": target["log_loss"], "rejected": answer["rows"]["rejected"]}
        if "accuracy" in target:
            found["accuracy"] = target["accuracy"]
        elif stream.kind != "classification":
            found |= number_scores(said, UNSCORED_ROWS[stream.kind])
    if TASKS.get(target["task"], "regression") == stream.kind or (stream.kind == "regression" and "rmse" in found):
        return found
    return {**found, "failed": f"took the target of a {stream.kind} for {target['task']}"}


def number_scores(path: Path, unscored: int) -> dict[str, Any]:
    """Errors, and coverage and mean width of every interval in a file of predictions; coverage also by quarters."""
    with path.open() as file:
        rows = [row for row in list(csv.DictReader(file))[unscored:] if row["predicted"] and row["observed"]]
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0] if name != "line"}
    observed = columns["observed"]
    found: dict[str, Any] = errors(columns["predicted"], observed)
    for name in columns:
        if name.startswith("low_"):
            level = name.removeprefix("low_")
            low, high = columns[name], columns[f"high_{level}"]
            inside = (observed >= low) & (observed <= high)
            found[f"coverage_{level}"] = float(inside.mean())
            found[f"width_{level}"] = float((high - low).mean())
            found[f"quarters_{level}"] = [float(part.mean()) for part in np.array_split(inside, 4)]
    return found
