"""The page: one HTML file with everything in it."""

from collections.abc import Sequence
from html import escape

import numpy as np

from natkal.report.charts import Axes, bars, short
from natkal.report.document import document, settings_table, tiles
from natkal.report.facts import Facts
from natkal.report.fans import pictures
from natkal.report.figures import figure
from natkal.report.targets import NAMES, target_section
from natkal.report.timeline import along
from natkal.runs.forecasting import Forecast
from natkal.runs.session import Session

SHOWN_FILTERS = 5
"""How many filters of a bank have a colour of their own."""


def page(session: Session, facts: Facts, seconds: float | None, fans: Sequence[Forecast]) -> str:
    """The whole document."""
    targets = [target_section(session, facts, position) for position in range(len(session.metrics.parts))]
    names = ", ".join(part.target.name for part in session.metrics.parts)
    data = ", ".join(name.rpartition("/")[2] for name in session.files)
    body = (
        f"<h1>Predicting {escape(names)} from {escape(data)}</h1>"
        f'<p class="muted">{session.counts.learned:,} rows learned one at a time, each predicted first.</p>\n'
        + _tiles(session, seconds)
        + _fans(session, fans)
        + "".join(targets)
        + _knowledge(session, facts)
        + _views(session, facts)
        + _rejects(session)
        + _settings(session)
    )
    return document(names, body)


def _tiles(session: Session, seconds: float | None) -> str:
    counts = session.counts
    found = []
    for part in session.metrics.parts:
        summary = part.summary()
        prefix = f"{part.target.name}: " if len(session.metrics.parts) > 1 else ""
        headline = "accuracy" if part.classes else "mean_absolute_error"
        for name in ("log_loss", headline):
            if name in summary:
                form = ".1%" if name == "accuracy" else ""
                base = summary[f"baseline_{name}"]
                found.append((_value(summary[name], form), prefix + NAMES[name], f"baseline {_value(base, form)}"))
        if "auc" in summary:
            found.append((_value(summary["auc"]), f"{prefix}AUC", "0.5 is chance"))
    found.append((f"{counts.learned:,}", "rows learned", f"of {counts.read:,} read"))
    found.append((f"{counts.rejected:,}", "rows rejected", f"{counts.skipped:,} skipped"))
    if seconds:
        found.append((f"{counts.read / seconds:,.0f}", "rows per second", f"{seconds:.1f} s in all"))
    return tiles(found)


def _fans(session: Session, fans: Sequence[Forecast]) -> str:
    charts = "".join(figure(*picture) for picture in pictures(session, fans))
    return f'<h2>Forecasts</h2><div class="grid2">{charts}</div>\n' if charts else ""


def _knowledge(session: Session, facts: Facts) -> str:
    charts = []
    if facts.relevance:
        top = list(facts.relevance.items())[:14]
        chart = bars([name for name, _ in top], [value for _, value in top], "Feature relevance")
        note = "How much log loss, in nats a row, is lost on the last rows when the column is shuffled among them."
        charts.append(figure("Feature relevance", chart, [], note))
    rows, memory = facts.memory
    axis = along(rows, facts.series.get("time") if len(rows) == len(facts.series.get("row", [])) else None)
    axes = Axes(axis.ends, (0, float(memory.max()) * 1.05), x_label=axis.label, dates=axis.dates)
    axes.line(axis.places.tolist(), memory.tolist(), "own", name="effective memory")
    axes.values(axis.places.tolist(), memory.tolist(), "effective memory")
    note = f"How many rows count in what is known now, 1/η: {short(float(memory[-1]))} at the end."
    charts.append(figure("Effective memory", axes.svg("Effective memory"), [], note))
    if facts.weights:
        charts.append(_weights(facts))
    whose = f" (key {next(iter(session.learner.keys))})" if session.learner.keys else ""
    return f'<h2>What was learned{escape(whose)}</h2><div class="grid2">{"".join(charts)}</div>\n'


def _weights(facts: Facts) -> str:
    """The share of each filter of the bank, stacked; those that had most in all from below, the others together."""
    axis = along(facts.series["row"], facts.series.get("time"))
    rows = axis.places
    order = sorted(facts.weights, key=lambda name: -float(np.nansum(facts.weights[name])))
    axes = Axes(axis.ends, (0, 1), x_label=axis.label, y_format=".0%", dates=axis.dates)
    shown = {name.replace("prior ", "prior ×"): facts.weights[name] for name in order[:SHOWN_FILTERS]}
    if order[SHOWN_FILTERS:]:
        shown[f"{len(order) - SHOWN_FILTERS} others"] = np.sum(
            [facts.weights[name] for name in order[SHOWN_FILTERS:]], axis=0
        )
    below = np.zeros(len(rows))
    for number, share in enumerate(shown.values()):
        above = below + share
        axes.band(rows.tolist(), below.tolist(), above.tolist(), f"share s{number}")
        below = above
    key = [(f"area s{number}", name) for number, name in enumerate(shown)]
    note = "The weight of each filter in the mixture. Filters differ in model, prior (times 1/fan-in) and fading."
    return figure("Weights of the bank", axes.svg("Weights of the bank"), key, note)


def _views(session: Session, facts: Facts) -> str:
    spread = facts.spread
    size = facts.parameters
    fading, eta = facts.fading, facts.learning_rate
    cov = "" if spread is None else f"eigenvalues of P from {spread[0]:.2g} to {spread[1]:.2g}"
    fisher = "" if spread is None else f"eigenvalues of J from {eta / spread[1]:.2g} to {eta / spread[0]:.2g}"
    rows = [
        ("what is stored", f"covariance P of {size:,} parameters", f"Fisher matrix J = η P⁻¹ of {size:,} parameters"),
        ("now", cov, fisher),
        ("forgetting", f"fading λ = {fading:g} per row", f"learning rate η = {eta:.3g} (now)"),
        ("a step", "θ ← θ + P ∂ log p(y)", "θ ← θ + η J⁻¹ ∂ log p(y)"),
        ("the same", "1 − λₜ = ηₜ₋₁/ηₜ − ηₜ₋₁", "P = η J⁻¹"),
    ]
    body = "".join(f"<tr><th>{a}</th><td>{b}</td><td>{c}</td></tr>" for a, b, c in rows)
    whose = ": the filter with the largest weight" if facts.weights else ""
    return (
        f"<details><summary>Two views of the same learner{whose}</summary>"
        "<figure class=wide><table><thead><tr><th></th>"
        f"<th>Kalman filter</th><th>online natural gradient</th></tr></thead><tbody>{body}</tbody></table></figure>"
        f'<div class="grid2">{_spectrum(facts)}</div></details>\n'
    )


def _spectrum(facts: Facts) -> str:
    if facts.spectrum is None:
        return ""
    values = np.sort(facts.spectrum)[::-1]
    axes = Axes((1, len(values)), (float(values[-1]), float(values[0])), x_label="direction", log_y=True)
    axes.line(np.arange(1, len(values) + 1).tolist(), values.tolist(), "own", name="eigenvalue")
    note = "Eigenvalues of J: the data decide the large directions, the prior the small ones."
    return figure("Spectrum of the Fisher matrix", axes.svg("Spectrum of the Fisher matrix"), [], note)


def _rejects(session: Session) -> str:
    counts = session.counts
    line = counts.accounting()
    body = "".join(
        f'<tr><td>{escape(reason)}</td><td class="n">{count:,}</td></tr>'
        for reason, count in sorted(session.reasons.items(), key=lambda entry: -entry[1])[:20]
    )
    table = f'<table><tr><th>reason</th><th class="n">rows</th></tr>{body}</table>' if body else ""
    warned = "".join(f"<p>warning: {escape(warning)}</p>" for warning in session.warnings())
    return f"<h2>Rows</h2><figure class=wide><p>{line}</p>{warned}{table}</figure>\n"


def _settings(session: Session) -> str:
    features = ", ".join(f"{feature.name} ({feature.kind})" for feature in session.schema.features)
    ignored = ", ".join(f"{name} ({reason})" for name, reason in session.schema.ignored.items())
    rows = [("data", ", ".join(session.files)), ("features", features), ("ignored", ignored)]
    return settings_table(rows, session.settings)


def _value(value: float, form: str = "") -> str:
    return short(value, form)
