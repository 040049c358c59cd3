"""What a report says, gathered from a run: its last checkpoint and its metrics file."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.app.session.metrics import TargetMetrics
from natkal.app.session.session import Session
from natkal.engine import KalmanState
from natkal.learners import Bank

LARGEST = 3000
"""The largest number of parameters whose covariance is taken apart for its spectrum."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """Numbers only; the page decides how they look."""

    series: dict[str, np.ndarray]
    spectrum: np.ndarray | None
    relevance: dict[str, float]
    steps: int
    memory: tuple[np.ndarray, np.ndarray]
    weights: dict[str, np.ndarray]
    spread: tuple[float, float] | None
    fading: float
    learning_rate: float


def gather(session: Session) -> Facts:
    """Everything the page needs that takes computing."""
    state = session.fleet.one(0 if session.schema.key else None)
    learner, known = session.learner, state.learner
    if isinstance(learner, Bank):
        learner, known = learner.best(known)
    steps, fading = int(known.steps), float(learner.rates.amount)  # pyright: ignore[reportAttributeAccessIssue]
    eigenvalues = None
    if learner.model.size <= LARGEST:
        eigenvalues = np.linalg.eigvalsh(np.asarray(learner.covariance(known)))[::-1]
    eta = 1 / effective_memory(np.array([max(steps, 1)]), fading)[0]
    rows = np.unique(np.geomspace(1, max(steps, 2), 60).astype(int))
    series = coarser(read_metrics(metrics_path(session)))
    return Facts(
        series=series,
        spectrum=None if eigenvalues is None else eta / np.maximum(eigenvalues, 1e-300),
        relevance=relevance(session, state, known),
        steps=steps,
        memory=(
            (series["row"], series["effective memory"])
            if "effective memory" in series
            else (rows, effective_memory(rows, fading))
        ),
        weights={name.removeprefix("weight "): series[name] for name in series if name.startswith("weight ")},
        fading=fading,
        spread=None if eigenvalues is None else (float(eigenvalues[-1]), float(eigenvalues[0])),
        learning_rate=float(eta),
    )


def metrics_path(session: Session) -> Path:
    """Where the run wrote its metrics."""
    return Path(session.settings.metrics) if session.settings.metrics else session.folder / "metrics.csv"


def effective_memory(rows: np.ndarray, fading: float) -> np.ndarray:
    """How many observations count: 1/eta_t, with 1/eta_t = (1 - lambda)/eta_{t-1} + 1 and eta_0 = 1 (Prop. 3)."""
    if fading == 0:
        return rows + 1.0
    kept = (1 - fading) ** rows.astype(float)
    return (1 - kept) / fading + kept


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """The metrics file, column by column; an empty cell is NaN."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = rows[0].keys() if rows else []
    return {name: np.array([float(row[name]) if row[name] else np.nan for row in rows]) for name in names}


def coarser(series: dict[str, np.ndarray], windows: int = 64) -> dict[str, np.ndarray]:
    """Neighbouring windows taken together until there are at most about so many, each weighted by its rows."""
    if not series or len(series["row"]) <= windows:
        return series
    group = np.minimum((series["row"] - 1) * windows // series["row"][-1], windows - 1).astype(int)
    weight = np.bincount(group, series["rows"], windows)
    there = weight > 0
    merged = {}
    for name, values in series.items():
        if name in ("row", "rows"):
            continue
        known = np.isfinite(values)
        total = np.bincount(group[known], (values * series["rows"])[known], windows)
        counted = np.bincount(group[known], series["rows"][known], windows)
        merged[name] = np.where(counted > 0, total / np.maximum(counted, 1), np.nan)[there]
    last = np.zeros(windows)
    np.maximum.at(last, group, series["row"])
    return {"row": last[there], "rows": weight[there], **merged}


def relevance(session: Session, state: Any, known: KalmanState) -> dict[str, float]:
    """For each column, how much a usual change of it moves the raw outputs: |d raw / d input| times its spread.

    Averaged over the last rows; the slots of one column are taken together (root of the sum of squares).
    """
    inputs = session.recent_inputs
    if not len(inputs) or known.carry != ():
        return {}
    scaled = jax.vmap(lambda row: session.loop.scaled_inputs(state, row))(jnp.asarray(inputs))
    raw = session.learner.model.raw  # pyright: ignore[reportAttributeAccessIssue]
    slopes = jax.vmap(jax.jacobian(lambda row: raw(known.params, row)))(scaled)
    moves = np.sqrt(np.mean(np.square(np.asarray(slopes)), axis=(0, 1))) * np.asarray(jnp.std(scaled, axis=0))
    total: dict[str, float] = {}
    for name, move in zip(session.encoder.owners, moves, strict=True):
        total[name] = float(np.hypot(total.get(name, 0.0), move))
    return dict(sorted(total.items(), key=lambda entry: -entry[1]))


def calibration(part: TargetMetrics) -> dict[str, np.ndarray]:
    """Classes: mean probability and share of hits in each tenth. Numbers: share of rows in each tenth of the law."""
    rows = part.calibration[:, 0]
    if not part.classes:
        return {"share": rows / max(rows.sum(), 1)}
    with np.errstate(invalid="ignore"):
        return {"rows": rows, "probability": part.calibration[:, 1] / rows, "hits": part.calibration[:, 2] / rows}
