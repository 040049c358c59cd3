"""What `/state` and the live page say of a run: scores beside the baselines, calibration, weights, last rows, alarms.

All of it comes from the session's own metrics, so it equals what `natkal report` writes of the same rows. The open
window counts as far as it goes, on a copy.
"""

import copy
import math
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from natkal.banks.monitor import monitor
from natkal.report.facts import calibration, coarser, metrics_path, read_metrics
from natkal.report.targets import NORMAL_90
from natkal.runs.metrics import Record, TargetMetrics
from natkal.runs.session import Session

SHOWN_ROWS = 60
"""How many of the last predictions are told."""
SHOWN_WINDOWS = 200
MONITOR_WINDOW = 200
FAST, SLOW, ERRORS = 1 / 50, 1 / 1000, 5.0
"""Drift: the mean loss over about 50 rows is above that over about 1,000 by five standard errors (`selection.py`)."""
QUIET_ROWS = 500
"""Rows without a cause before an alarm of the same kind is told again."""
KEPT_ALARMS = 20


class Series:
    """Figures window by window since the run began, few enough to draw."""

    def __init__(self, session: Session):
        self._columns = read_metrics(metrics_path(session))
        self._session = session
        session.series.clear()

    def columns(self) -> dict[str, list[float | None]]:
        """Every figure as a list, the open window last; at most about SHOWN_WINDOWS of them."""
        new, self._session.series[:] = list(self._session.series), []
        for figures in new:
            names = self._columns or dict.fromkeys(self._session.metrics.names, np.zeros(0))
            self._columns = {
                name: np.append(values, float(figures.get(name, math.nan))) for name, values in names.items()
            }
        if self._columns and len(self._columns["row"]) > 2 * SHOWN_WINDOWS:
            self._columns = coarser(self._columns, SHOWN_WINDOWS)
        metrics = copy.deepcopy(self._session.metrics)
        tail = metrics.close() or {}
        names = self._columns or ({name: np.zeros(0) for name in metrics.names} if tail else {})
        found = {name: values.tolist() + ([tail.get(name, math.nan)] if tail else []) for name, values in names.items()}
        return {name: [_finite(value) for value in values] for name, values in found.items()}


class Alarms:
    """Losses that have risen, and predictions whose spread is not that of what came; of the first target."""

    def __init__(self) -> None:
        self.told: deque[dict[str, Any]] = deque(maxlen=KEPT_ALARMS)
        self._count = 0
        self._fast = self._slow = self._square = 0.0
        self._last: dict[str, int] = {}

    def add(self, record: Record, row: int) -> None:
        """Some more rows; `row` is the number of the last one."""
        loss = -record.log_prob[np.isfinite(record.log_prob)]
        if not len(loss):
            return
        self._count += len(loss)
        if self._count == len(loss):
            self._fast = self._slow = float(loss.mean())
            self._square = float(np.mean(loss**2))
        rate = max(SLOW, 1 / self._count)
        self._fast = _followed(self._fast, loss, max(FAST, 1 / self._count))
        self._slow, self._square = _followed(self._slow, loss, rate), _followed(self._square, loss**2, rate)
        error = math.sqrt(max(self._square - self._slow**2, 1e-12) * FAST / 2)
        if self._count > 2 / FAST and self._fast > self._slow + ERRORS * error:
            self._tell("drift", row, f"log loss rose to {self._fast:.3g} over the last rows, from {self._slow:.3g}")

    def check(self, part: TargetMetrics, recent: Record, row: int) -> None:
        """Compare the last rows with their predicted laws (`nk.monitor`)."""
        surprise = surprises(part, recent)
        seen = np.isfinite(surprise)
        if seen.sum() < MONITOR_WINDOW / 2:
            return
        zeros = np.zeros(len(surprise))
        info: Any = SimpleNamespace(
            observed=seen, surprise=np.nan_to_num(surprise), log_prob=zeros, memory=zeros, prior_left=zeros
        )
        found = monitor(info, window=MONITOR_WINDOW)
        if found.alarm[-1]:
            mean, low, high = found.surprise[-1], found.low[-1], found.high[-1]
            self._tell(
                "inconsistency",
                row,
                f"squared errors are {mean:.3g} times the predicted ones over the last {MONITOR_WINDOW} rows, "
                f"outside {low:.3g} to {high:.3g}",
            )

    def _tell(self, kind: str, row: int, text: str) -> None:
        if row - self._last.get(kind, -QUIET_ROWS) >= QUIET_ROWS:
            self.told.append({"kind": kind, "row": row, "time": time.time(), "text": text})
        self._last[kind] = row


def surprises(part: TargetMetrics, rows: Record) -> np.ndarray:
    """Squared normalised innovation of each row, of mean 1 under the predicted law.

    Numbers: the square of the normal quantile of P(Y <= y). Classes: (hit - p)^2 / (p (1 - p)), p that of the guess.
    """
    if part.classes:
        likely = np.where(part.classes == 2, np.maximum(rows.spread, 1 - rows.spread), rows.spread)
        p = np.clip(likely, 1e-3, 1 - 1e-3)
        hit = np.where(np.isnan(rows.observed), np.nan, rows.guess == rows.observed)
        return (hit - p) ** 2 / (p * (1 - p))
    from jax.scipy.special import ndtri

    return np.asarray(ndtri(np.clip(rows.rank, 1e-9, 1 - 1e-9))) ** 2


def session_facts(session: Session, series: Series, alarms: Alarms, members: np.ndarray | None) -> dict[str, Any]:
    """The numbers of a run; `members` is the last thing that was told of them."""
    for position, part in enumerate(session.metrics.parts[:1]):
        alarms.check(part, session.metrics.columns(session.metrics.recent, position), session.metrics.row)
    names = session.learner.member_names
    now = [] if members is None else [_finite(value) for value in members[: len(names)].tolist()]
    weights = {name.removeprefix("weight "): value for name, value in zip(names[:-1], now, strict=False)}
    counts = session.counts
    return {
        "rows": {"read": counts.read, "learned": counts.learned, "skipped": counts.skipped},
        "targets": [_target(session, position) for position in range(len(session.metrics.parts))],
        "features": [feature.name for feature in session.schema.features],
        "parameters": session.learner.parameters,
        "keys": len(session.learner.keys),
        "model": session.settings.model,
        "members": weights,
        "effective_memory": now[-1] if len(now) == len(names) else None,
        "series": series.columns(),
        "alarms": list(alarms.told),
    }


def _target(session: Session, position: int) -> dict[str, Any]:
    metrics = copy.deepcopy(session.metrics)
    metrics.close()
    part = metrics.parts[position]
    summary = {name: _finite(value) for name, value in part.summary().items()} if part.scored else {}
    table = {name: [_finite(value) for value in values.tolist()] for name, values in calibration(part).items()}
    rows = metrics.columns(metrics.recent[-SHOWN_ROWS:], position)
    classes = list(part.target.classes)
    exact = bool(np.isfinite(rows.low).all())
    if not exact:
        rows = rows._replace(low=rows.guess - NORMAL_90 * rows.spread, high=rows.guess + NORMAL_90 * rows.spread)
    last = []
    for guess, spread, low, high, observed in zip(
        rows.guess, rows.spread, rows.low, rows.high, rows.observed, strict=True
    ):
        one: dict[str, Any] = {"predicted": _value(classes, guess), "observed": _value(classes, observed)}
        if classes:
            one["probability"] = _finite(float(spread if len(classes) != 2 or guess else 1 - spread))
        else:
            one |= {"low": _finite(float(low)), "high": _finite(float(high))}
        last.append(one)
    return {
        "target": part.target.name,
        "task": part.target.task,
        "classes": classes[:100],
        **{name: value for name, value in summary.items() if name not in ("target", "task", "rows")},
        "scored": part.scored,
        "calibration": table,
        "last_row": metrics.row,
        "interval": "90% interval" if exact else "1.64 standard deviations",
        "last": last,
    }


def _value(classes: list[str], value: float) -> Any:
    if value != value:
        return None
    return classes[int(value)] if classes else _finite(float(value))


def _followed(mean: float, values: np.ndarray, rate: float) -> float:
    """An exponentially weighted mean after some more values."""
    decay = (1 - rate) ** np.arange(len(values) - 1, -1, -1)
    return float(mean * (1 - rate) ** len(values) + rate * (decay @ values))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
