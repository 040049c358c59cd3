"""What a report says, gathered from a run: its last checkpoint and its metrics file."""

import copy
import csv
import dataclasses
import datetime
from pathlib import Path

import numpy as np

from natkal.compiling.policy import run_once
from natkal.runs.metrics import TargetMetrics
from natkal.runs.session import Session
from natkal.tables.engine.batch import TableBatch
from natkal.tables.schema.times import seconds
from natkal.tables.table import TableLearner

LARGEST = 3000
"""The largest number of parameters whose covariance is taken apart for its spectrum."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """Numbers only; the page decides how they look."""

    series: dict[str, np.ndarray]
    spectrum: np.ndarray | None
    relevance: dict[str, float]
    steps: int
    parameters: int
    memory: tuple[np.ndarray, np.ndarray]
    weights: dict[str, np.ndarray]
    spread: tuple[float, float] | None
    fading: float
    learning_rate: float


def gather(session: Session) -> Facts:
    """Everything the page needs that takes computing."""
    state = session.learner.one(0 if session.schema.key else None)[0]
    learner, known = session.learner.loop.learners[0].best(state)
    steps, fading = int(known.steps), float(np.asarray(learner.rates.amount))
    eigenvalues = None
    if learner.size <= LARGEST:
        eigenvalues = spectrum(np.asarray(run_once(learner.covariance, known)))
    eta = 1 / effective_memory(np.array([max(steps, 1)]), fading)[0]
    rows = np.unique(np.geomspace(1, max(steps, 2), 60).astype(int))
    series = coarser(read_metrics(metrics_path(session)))
    return Facts(
        series=series,
        spectrum=None if eigenvalues is None else eta / eigenvalues,
        relevance=relevance(session),
        steps=steps,
        parameters=learner.size,
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


def spectrum(cov: np.ndarray) -> np.ndarray | None:
    """The eigenvalues of a covariance, the largest first, none below the rounding of the largest; None without any."""
    if not np.isfinite(cov).all():
        return None
    found = np.linalg.eigvalsh(cov.astype(float))[::-1]
    return np.maximum(found, np.finfo(cov.dtype).eps * found[0]) if found[0] > 0 else None


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
    """The metrics file, column by column; an empty cell is NaN, a time in seconds since 1970."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = rows[0].keys() if rows else []

    def number(name: str, cell: str) -> float:
        if not cell:
            return np.nan
        return float(seconds([datetime.datetime.fromisoformat(cell)])[0]) if name == "time" else float(cell)

    return {name: np.array([number(name, row[name]) for row in rows]) for name in names}


def coarser(series: dict[str, np.ndarray], windows: int = 64) -> dict[str, np.ndarray]:
    """Neighbouring windows taken together until there are at most about so many, each weighted by its rows."""
    if not series or len(series["row"]) <= windows:
        return series
    group = np.minimum((series["row"] - 1) * windows // series["row"][-1], windows - 1).astype(int)
    weight = np.bincount(group, series["rows"], windows)
    there = weight > 0
    merged = {}
    for name, values in series.items():
        if name in ("row", "rows", "time"):
            continue
        known = np.isfinite(values)
        total = np.bincount(group[known], (values * series["rows"])[known], windows)
        counted = np.bincount(group[known], series["rows"][known], windows)
        merged[name] = np.where(counted > 0, total / np.maximum(counted, 1), np.nan)[there]
    last = np.zeros(windows)
    np.maximum.at(last, group, series["row"])
    if "time" in series:
        merged["time"] = series["time"][np.isin(series["row"], last[there])]
    return {"row": last[there], "rows": weight[there], **merged}


def relevance(session: Session) -> dict[str, float]:
    """For each column, how much log loss rises on the last rows when the column is permuted among them.

    What matters is what the loss loses without the column, not the size of a gradient: a column that determines the
    target comes out on top, an identifier does not. In nats per row, the largest first; of the first target. Past
    targets stay in their order; rows whose past reaches further back than the rows that are kept are left out.
    """
    inputs = session.recent_inputs
    record = session.metrics.columns(session.metrics.recent, 0)
    count = min(len(inputs), len(record.observed))
    if count < 8 or session.learner.options.has_memory or session.schema.key:
        return {}
    inputs, observed = inputs[-count:], session.metrics.recent_targets()[-count:]

    past = session.learner.pasts[0]
    skipped = min(past.season + max(past.lags, default=0), count // 2) if past.columns else 0

    def loss(numbers: np.ndarray) -> float:
        rows = _with_past(session.learner, numbers, observed)
        told = session.learner.predict(rows, limits=False)
        return float(-np.nanmean(told.targets[0].log_prob[skipped:]))

    usual = loss(inputs)
    order = np.random.default_rng(0).permutation(count)
    owners = np.array(session.encoder.owners)
    lost = {}
    for name in dict.fromkeys(owners.tolist()):
        moved = inputs.copy()
        moved[:, owners == name] = inputs[order][:, owners == name]
        lost[name] = max(loss(moved) - usual, 0.0)
    return dict(sorted(lost.items(), key=lambda entry: -entry[1]))


def _with_past(learner: TableLearner, numbers: np.ndarray, observed: np.ndarray) -> TableBatch:
    """Rows with the targets of the rows before each as its past; the learner's own past stays as it is."""
    kept = learner.pasts, learner.known
    learner.pasts, learner.known = copy.deepcopy(kept)
    try:
        return learner.rows(numbers, observed)
    finally:
        learner.pasts, learner.known = kept


def calibration(part: TargetMetrics) -> dict[str, np.ndarray]:
    """Classes: mean probability and share of hits in each tenth. Numbers: share of rows in each tenth of the law."""
    rows = part.calibration[:, 0]
    if not part.classes:
        return {"share": rows / max(rows.sum(), 1)}
    with np.errstate(invalid="ignore"):
        return {"rows": rows, "probability": part.calibration[:, 1] / rows, "hits": part.calibration[:, 2] / rows}
