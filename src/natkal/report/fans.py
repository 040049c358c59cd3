"""Forecasts as fan charts: the last cycles of a series and the rows to come, and how often each interval has held."""

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from natkal.report.charts import Axes, span
from natkal.report.timeline import Along, along
from natkal.runs.forecasting import Forecast
from natkal.runs.session import Session
from natkal.tables.schema import cells
from natkal.tables.schema.times import seconds

MAX_FANS = 6
"""How many keys are shown."""
CYCLES = 3
"""How many periods of the past are shown, where the series has a period."""
BANDS = ((5, 95), (10, 90), (25, 75))
"""Percentiles between which a band lies: 90, 80 and 50 percent of the paths."""


class Picture(NamedTuple):
    """A chart with its title, legend (mark, text) and note."""

    title: str
    chart: str
    key: list[tuple[str, str]]
    note: str


def pictures(session: Session, fans: Sequence[Forecast]) -> list[Picture]:
    """A fan for each forecast of numbers, and the coverage by rows ahead where the run has scored it."""
    shown = [fan for fan in fans if not session.schema.targets[fan.target].classes][:MAX_FANS]
    found = [_fan(session, fan) for fan in shown]
    if session.forecasts is not None and session.forecasts.totals[:, 0].any():
        found += [_coverage(session), _errors(session)]
    return found


def _fan(session: Session, fan: Forecast) -> Picture:
    target, past = session.schema.targets[fan.target], session.learner.pasts[fan.target]
    known = list(past.known.get(fan.key, ()))
    horizon = fan.paths.shape[1]
    seen = np.array(known[-max(CYCLES * past.season, 2 * horizon, 24) :])
    last = seen[-1:] if len(seen) else fan.paths[:1, 0]
    percentiles = np.percentile(fan.paths, [5, 10, 25, 50, 75, 90, 95], axis=0)
    by_share = {
        share: np.concatenate([last, row]) for share, row in zip((5, 10, 25, 50, 75, 90, 95), percentiles, strict=True)
    }
    axis = _axis(session, fan, len(seen))
    axes = Axes(axis.ends, span(seen, by_share[5], by_share[95]), x_label=axis.label, dates=axis.dates)
    before, ahead = axis.places[: len(seen)], axis.places[max(len(seen) - 1, 0) :]
    for low, high in BANDS:
        axes.band(ahead.tolist(), by_share[low].tolist(), by_share[high].tolist(), "band")
    axes.line(before.tolist(), seen.tolist(), "base", name="observed")
    axes.line(ahead.tolist(), by_share[50].tolist(), "own", name="median")
    axes.values(before.tolist(), seen.tolist(), "observed")
    axes.values(ahead[1:].tolist(), by_share[50][1:].tolist(), "median")
    whose = f", {fan.key}" if fan.key else ""
    period = f" Its period is {past.season} rows." if past.season else ""
    repeated = session.clock.repeated("") if not session.schema.key else []
    rows = f" Several rows have the same {', '.join(repeated)}: each step is one row." if repeated else ""
    note = f"The next {horizon} rows: 50, 80 and 90 percent of the paths, and their median.{period}{rows}"
    key = [("base", "observed"), ("", "forecast"), ("area", "50, 80, 90% intervals")]
    title = f"Forecast of {target.name}{whose}"
    return Picture(title, axes.svg(title), key, note)


def _axis(session: Session, fan: Forecast, seen: int) -> Along:
    """Times where those of the last rows and of the rows to come are known, else rows from the last one."""
    count = fan.paths.shape[1]
    rows = np.arange(1 - max(seen, 1), count + 1)
    times = session.metrics.recent_times[-max(seen, 1) :]
    known = not session.schema.key and len(times) == max(seen, 1) and len(fan.coming.times) == count
    coming = seconds([_moment(cell) for cell in fan.coming.times])
    found = along(rows, np.concatenate([times, coming]) if known else None, whole_run=False)
    return found if found.dates else found._replace(label="rows from the last one")


def _moment(cell: Any) -> datetime.datetime | None:
    try:
        return cells.moment(cell)
    except ValueError:
        return None


def _coverage(session: Session) -> Picture:
    assert session.forecasts is not None
    totals = session.forecasts.totals
    steps = np.arange(1, len(totals) + 1)
    share = totals[:, 3] / np.maximum(totals[:, 0], 1)
    axes = Axes((1, max(len(totals), 2)), (min(0.7, float(share.min())), 1.0), x_label="rows ahead", y_format=".0%")
    axes.line([1, max(len(totals), 2)], [0.9, 0.9], "ideal", name="90%")
    axes.line(steps.tolist(), share.tolist(), "own", name="coverage")
    axes.dots(steps.tolist(), share.tolist(), "dot")
    key = [("", "rows inside their 90% interval"), ("ideal", "90%")]
    note = f"Of {int(totals[0, 0]):,} forecasts, each made before its rows were seen."
    return Picture("Coverage by rows ahead", axes.svg("Coverage by rows ahead"), key, note)


def _errors(session: Session) -> Picture:
    assert session.forecasts is not None
    totals = session.forecasts.totals
    steps = np.arange(1, len(totals) + 1).tolist()
    own, last, seasonal = (totals[:, column] / np.maximum(totals[:, 0], 1) for column in (1, 4, 5))
    axes = Axes((1, max(len(totals), 2)), (0.0, span(own, last, seasonal)[1]), x_label="rows ahead")
    axes.line(steps, last.tolist(), "base", name="same as last")
    axes.line(steps, seasonal.tolist(), "ideal", name="a period ago")
    axes.line(steps, own.tolist(), "own", name="natkal")
    key = [("", "natkal"), ("base", "same as last"), ("ideal", "a period ago")]
    return Picture("Mean absolute error by rows ahead", axes.svg("Mean absolute error by rows ahead"), key, "")
