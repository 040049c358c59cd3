"""What a report says of one target: how the loss came down, calibration, the last rows, classes or residuals."""

from collections.abc import Mapping
from html import escape

import numpy as np

from natkal.report.charts import Axes, clipped_apart, short, span
from natkal.report.facts import Facts, calibration
from natkal.report.figures import figure, figures_table
from natkal.report.timeline import Along, along
from natkal.runs.class_scores import SHOWN_CLASSES, precision_recall
from natkal.runs.metrics import TargetMetrics
from natkal.runs.session import Session

NAMES = {
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "mean_absolute_error": "mean absolute error",
    "coverage_90": "rows inside their 90% interval",
}
NORMAL_90 = 1.645
FEW = 80
"""How many of the last rows the picture of predicted and observed numbers shows."""
BEFORE, JUMP = 8, 4.0
"""A window is marked as a change where its loss is this many deviations above that of so many windows before it."""


def target_section(session: Session, facts: Facts, position: int) -> str:
    """All charts of one target."""
    part = session.metrics.parts[position]
    prefix = f"{part.target.name}." if len(session.metrics.parts) > 1 else ""
    title = f"{part.target.name}, {part.target.task}"
    main = "accuracy" if part.classes else "mean_absolute_error"
    charts = [
        _running(facts.series, prefix, "log_loss", "Log loss as it learned"),
        _running(facts.series, prefix, main, f"{NAMES[main].capitalize()} as it learned"),
        _cumulative(facts.series, prefix),
        _calibration(part),
    ]
    if part.classes:
        charts += [_recent_classes(session, part, position), _confusion(part)]
    else:
        charts += [
            _coverage(facts.series, prefix),
            _recent_numbers(session, part, position),
            _residuals(session, position),
        ]
    return f'<h2>{escape(title)}</h2><div class="grid2">{"".join(charts)}</div>\n'


def changes(series: np.ndarray) -> np.ndarray:
    """The windows whose loss stands out above those just before them."""
    found = []
    for at in range(BEFORE, len(series)):
        before = series[at - BEFORE : at]
        spread = max(float(np.nanstd(before)), 0.02 * abs(float(np.nanmean(before))), 1e-12)
        if series[at] > np.nanmean(before) + JUMP * spread and (not found or at - found[-1] >= BEFORE):
            found.append(at)
    return np.array(found, int)


def _along(series: Mapping[str, np.ndarray]) -> Along:
    """The axis of the whole run."""
    return along(series.get("row", np.zeros(0)), series.get("time"))


def _along_recent(session: Session, count: int) -> Along:
    """The axis of the last rows."""
    last = session.metrics.row
    return along(np.arange(last - count + 1, last + 1), session.metrics.recent_times[-count:], whole_run=False)


def _running(series: Mapping[str, np.ndarray], prefix: str, name: str, title: str) -> str:
    axis = _along(series)
    x = axis.places
    y = series.get(prefix + name, np.zeros(0))
    base = series.get(f"{prefix}baseline_{name}", np.zeros(0))
    low, high = span(y, base, trim=0.01)
    form = ".0%" if name == "accuracy" else ""
    axes = Axes(axis.ends, (low, high), x_label=axis.label, y_format=form, dates=axis.dates)
    axes.line(x.tolist(), base.tolist(), "base", name="baseline")
    axes.line(x.tolist(), y.tolist(), "own", name=name.replace("_", " "))
    axes.values(x.tolist(), y.tolist(), name.replace("_", " "), ".1%" if form else "")
    note = "class frequencies so far" if name in ("accuracy",) else "what the earlier rows say without the features"
    key = [("", "natkal"), ("base", f"baseline: {note}")]
    if name == "log_loss":
        marked = changes(y)
        axes.marks_at(x[marked].tolist(), "the loss jumped")
        key += [("mark", "the loss jumped: the stream may have changed")] if len(marked) else []
    return figure(title, axes.svg(title), key, "")


def _cumulative(series: Mapping[str, np.ndarray], prefix: str) -> str:
    """Nats saved so far against each baseline that has a log loss."""
    axis = _along(series)
    x = axis.places
    rows = series.get("rows", np.zeros(0))
    own = series.get(f"{prefix}log_loss", np.zeros(0))
    saved = {}
    for kind, name in (("baseline_", "frequencies or mean so far"), ("last_", "same as last time")):
        other = series.get(f"{prefix}{kind}log_loss")
        if other is not None and np.isfinite(other).any():
            saved[name] = np.cumsum(np.nan_to_num((other - own) * rows))
    axes = Axes(axis.ends, span([0.0], *saved.values()), x_label=axis.label, dates=axis.dates)
    kinds = ("own", "base")
    for kind, (name, values) in zip(kinds, saved.items(), strict=False):
        axes.line(x.tolist(), values.tolist(), kind, name=name)
        axes.values(x.tolist(), values.tolist(), f"nats saved against {name}")
    key = [("" if kind == "own" else kind, f"against: {name}") for kind, name in zip(kinds, saved, strict=False)]
    note = "Cumulative log loss of the baseline minus that of natkal, in nats; rising means still ahead."
    return figure("Loss saved so far", axes.svg("Loss saved so far"), key, note)


def _coverage(series: Mapping[str, np.ndarray], prefix: str) -> str:
    axis = _along(series)
    x = axis.places
    y = series.get(f"{prefix}coverage_90", np.zeros(0))
    low = min(0.7, span(y)[0])
    axes = Axes(axis.ends, (low, 1.0), x_label=axis.label, y_format=".0%", dates=axis.dates)
    axes.line(list(axis.ends), [0.9, 0.9], "ideal", name="as promised")
    axes.line(x.tolist(), y.tolist(), "own", name="coverage")
    axes.values(x.tolist(), y.tolist(), "coverage", ".1%")
    key = [("", "share of rows inside their 90% interval"), ("ideal", "as promised")]
    return figure("Coverage over time", axes.svg("Coverage over time"), key, "")


def _calibration(part: TargetMetrics) -> str:
    table = calibration(part)
    if part.classes:
        axes = Axes((0, 1), (0, 1), x_label="predicted probability")
        axes.line([0, 1], [0, 1], "ideal", name="as predicted")
        sizes = 3 + 9 * np.sqrt(table["rows"] / max(table["rows"].max(), 1))
        axes.dots(table["probability"].tolist(), table["hits"].tolist(), "dot", sizes.tolist())
        axes.values(table["probability"].tolist(), table["hits"].tolist(), "hits", ".1%")
        what = f"of {part.target.classes[1]}" if part.classes == 2 else "of the most probable class"
        note = f"Probability {what}, in tenths; larger dots stand for more rows."
        return figure("Calibration", axes.svg("Calibration"), [("ideal", "as often as predicted")], note)
    share = table["share"]
    axes = Axes((0, 1), (0, max(0.2, float(share.max()))), x_label="tenth of the predicted law", y_format=".0%")
    middle = (np.arange(10) / 10 + 0.05).tolist()
    axes.columns(middle, share.tolist(), 0.085, "bar")
    axes.values(middle, share.tolist(), "rows", ".1%")
    axes.line([0, 1], [0.1, 0.1], "ideal", name="as predicted")
    note = "Where the observed value fell in its predicted law: one tenth of the rows in each, if all is right."
    return figure("Calibration", axes.svg("Calibration"), [("ideal", "as often as predicted")], note)


def _recent_classes(session: Session, part: TargetMetrics, position: int) -> str:
    rows = session.metrics.columns(session.metrics.recent, position)
    y = rows.observed
    if not len(y):
        return ""
    axis = _along_recent(session, len(y))
    x = axis.places
    seen = y if part.classes == 2 else (rows.guess == y).astype(float)
    axes = Axes(axis.ends, (0, 1), x_label=axis.label, dates=axis.dates)
    axes.line(x.tolist(), rows.spread.tolist(), "own", name="probability")
    axes.dots(x.tolist(), np.where(np.isnan(y), np.nan, seen).tolist(), "seen")
    name = part.target.classes[1] if part.classes == 2 else "the most probable class"
    axes.values(x.tolist(), rows.spread.tolist(), f"probability of {name}", ".1%")
    key = [("", f"probability of {name}"), ("point", "what came (1: yes, 0: no)")]
    return figure("The last rows", axes.svg("The last rows"), key, "")


def _recent_numbers(session: Session, part: TargetMetrics, position: int) -> str:
    rows = session.metrics.columns(session.metrics.recent, position)
    y = rows.observed[-FEW:]  # more would hide the intervals
    if not len(y):
        return ""
    axis = _along_recent(session, len(y))
    x = axis.places
    guess, spread, low, high = rows.guess[-FEW:], rows.spread[-FEW:], rows.low[-FEW:], rows.high[-FEW:]
    exact = bool(np.isfinite(low).all())
    if not exact:
        low, high = guess - NORMAL_90 * spread, guess + NORMAL_90 * spread
    axes = Axes(axis.ends, span(low, high, y, trim=0.002), x_label=axis.label, dates=axis.dates)
    axes.band(x.tolist(), low.tolist(), high.tolist(), "band")
    axes.line(x.tolist(), guess.tolist(), "own", name="predicted")
    axes.dots(x.tolist(), y.tolist(), "seen")
    axes.values(x.tolist(), y.tolist(), "observed")
    band = "90% interval" if exact else "1.64 standard deviations"
    key = [("", "predicted"), ("area", band), ("point", "observed")]
    return figure("Predicted and observed, the last rows", axes.svg("Predicted and observed"), key, "")


def _residuals(session: Session, position: int) -> str:
    rows = session.metrics.columns(session.metrics.recent, position)
    residual = rows.observed - rows.guess
    axes = Axes(span(rows.guess), span(residual, trim=0.002), x_label="predicted")
    axes.line(list(span(rows.guess)), [0, 0], "ideal", name="no error")
    axes.dots(rows.guess.tolist(), residual.tolist(), "seen")
    note = f"Observed minus predicted, the last {len(residual):,} rows: no pattern should be left."
    return figure("Residuals", axes.svg("Residuals"), [("point", "residual"), ("ideal", "no error")], note)


def _confusion(part: TargetMetrics) -> str:
    """How often each class was taken for each other one, and the scores of each class."""
    shown = min(part.classes, SHOWN_CLASSES)
    names = [*part.target.classes[:shown], *(["others"] if part.classes > SHOWN_CLASSES else [])]
    table = part.confusion[: len(names), : len(names)]
    if part.classes > SHOWN_CLASSES:
        table = np.concatenate([part.confusion[:shown], part.confusion[-1:]])[:, [*range(shown), -1]]
    precision, recall = precision_recall(table)
    largest = np.maximum(table.sum(axis=1, keepdims=True), 1)
    shown_names = clipped_apart(names, 12)
    heads = [f'<th title="{escape(name)}">{escape(label)}</th>' for name, label in zip(names, shown_names, strict=True)]
    body = ""
    for row in range(len(names)):
        cells = "".join(
            f'<td class="{"hit" if row == column else "miss"}" style="--share:{count / largest[row, 0]:.2f}">'
            f"{count:,.0f}</td>"
            for column, count in enumerate(table[row])
        )
        scores = "".join(
            f"<td>{'' if np.isnan(value) else f'{value:.1%}'}</td>" for value in (recall[row], precision[row])
        )
        body += f"<tr>{heads[row]}{cells}{scores}</tr>"
    area = part.summary().get("auc")
    note = "Rows: what came. Columns: the most probable class before learning. Found: the share of a class's rows that "
    note += "were predicted so. Right: the share of its predictions that were right."
    note += "" if area is None else f" AUC {short(area)}."
    square = (
        f'<table class="square"><thead><tr><th></th>{"".join(heads)}<th>found</th><th>right</th></tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
    return figures_table("Confusion matrix", square, note)
