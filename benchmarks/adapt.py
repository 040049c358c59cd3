"""`python -m benchmarks adapt`: a model fitted on the first tenth of a stream, kept alive, beside fitting it again.

Each part is a stream. LightGBM is fitted on the first tenth of the rows; the rest is predicted row by row. Rivals: the
model left alone; fitted again every REFIT rows on all rows so far, and on the last WINDOW of them; with the last three
targets as columns too; natkal alone, from its first row on. Losses are nats a row; of a number, those of a Student's t
around the answer with the scale of its errors so far. Processor seconds are those of everything but the first fit.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.streams.data import stream
from benchmarks.streams.stream import Stream
from natkal.adapting.outer import ErrorLaw

PARTS = ("elec2", "agrawal", "sea", "switching", "synth FriedmanDrift")
OPTIONS = {"rows": (20_000, "rows of each stream")}
REFIT, WINDOW, PAST, BLOCK, FIRST = 1_000, 5_000, 3, 1_000, 1_000
"""FIRST: rows after the first fit whose loss is told by itself."""


def run_part(part: str, report: Callable[[str], None], rows: int = 20_000) -> dict[str, Any]:
    """All contestants on one stream."""
    found = stream(part)
    found = found.head(min(rows, len(found.targets)))
    inputs, targets, start = found.inputs, found.targets, len(found.targets) // 10
    base = _fit(found, inputs[:start], targets[:start])
    contestants: dict[str, Callable[[], np.ndarray]] = {
        "frozen": lambda: _losses(found, base, inputs[start:], targets[start:]),
        "refitted on all": lambda: _refitted(found, inputs, start, None),
        "refitted in a window": lambda: _refitted(found, inputs, start, WINDOW),
        "refitted, past targets": lambda: _refitted(found, _with_past(inputs, targets), start, None),
        "natkal alone": lambda: _alone(found, inputs, targets, start),
        "adapted": lambda: _adapted(found, base, inputs, targets, start),
        "adapted, budget fast": lambda: _adapted(found, base, inputs, targets, start, budget="fast"),
    }
    lines = []
    for name, run in contestants.items():
        before = time.process_time()
        loss = run()
        seconds = time.process_time() - before
        lines.append({"contestant": name, "loss": loss.mean(), "first": loss[:FIRST].mean(), "cpu_s": seconds})
        report(f"{part}: {name} {loss.mean():.4f}")
    return {"rows": len(targets), "lines": lines}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], list[tuple[str, str]]]]:
    """One table for each stream."""
    columns = [("contestant", "contestant"), ("loss", "loss"), ("first", f"first {FIRST} rows"), ("cpu_s", "CPU s")]
    return [(f"{part}, {found['rows']:,} rows", found["lines"], columns) for part, found in results.items()]


def _model(found: Stream) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMClassifier if found.classes else LGBMRegressor
    return kind(verbosity=-1, n_jobs=1, random_state=0)


def _fit(found: Stream, inputs: np.ndarray, targets: np.ndarray) -> Any:
    return _model(found).fit(inputs, targets)


def _losses(found: Stream, model: Any, inputs: np.ndarray, targets: np.ndarray, law: ErrorLaw | None = None) -> Any:
    """Minus log p of each target by this model; a probability of 0 counts as 1e-15, which favours the rivals."""
    if not found.classes:
        answers = model.predict(inputs)
        return -(law or ErrorLaw(answers)).learn(targets - answers)
    probabilities = np.full((len(inputs), found.classes), 1e-15)
    probabilities[:, model.classes_] = np.maximum(model.predict_proba(inputs), 1e-15)
    return -np.log(probabilities[np.arange(len(targets)), targets])


def _refitted(found: Stream, inputs: np.ndarray, start: int, window: int | None) -> np.ndarray:
    losses, law = [], None
    for first in range(start, len(inputs), REFIT):
        known = slice(0 if window is None else max(0, first - window), first)
        model = _fit(found, inputs[known], found.targets[known])
        law = law or (None if found.classes else ErrorLaw(model.predict(inputs[:start])))
        part = slice(first, first + REFIT)
        losses.append(_losses(found, model, inputs[part], found.targets[part], law))
    return np.concatenate(losses)


def _with_past(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The last three targets as columns too."""
    before = [np.concatenate([np.full(lag, np.nan), targets[:-lag]]) for lag in range(1, PAST + 1)]
    return np.column_stack([inputs, *before])


def _alone(found: Stream, inputs: np.ndarray, targets: np.ndarray, start: int) -> np.ndarray:
    from natkal.sklearn import KalmanClassifier, KalmanRegressor

    model: Any = (KalmanClassifier if found.classes else KalmanRegressor)(past="1,2,3")
    given = {"classes": np.arange(found.classes)} if found.classes else {}
    return -model.learn_predicted(inputs, targets, **given).log_prob[start:]


def _adapted(found: Stream, base: Any, inputs: np.ndarray, targets: np.ndarray, start: int, **options: Any) -> Any:
    from natkal.sklearn import adapted

    model, losses = adapted(base, past="1,2,3", **options), []
    for first in range(start, len(inputs), BLOCK):
        part = slice(first, first + BLOCK)
        losses.append(np.full(len(targets[part]), model.partial_fit(inputs[part], targets[part]).log_loss_))
    return np.concatenate(losses)
