"""The report of a run of `natkal decide`: rewards beside simple policies, arms over time, propensities, values."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from natkal.decisions.off_policy import Estimate
from natkal.report.charts import HEIGHT, WIDTH, Axes, clipped, short, span
from natkal.report.document import document, settings_table, tiles
from natkal.report.figures import figure, figures_table
from natkal.runs.decision_record import BINS, DecisionRecord
from natkal.runs.decisions import DecisionSession

SHOWN_ARMS = 5
"""Arms with a colour of their own; the others share one."""
OWN, LOG = "This run's decisions", "Decisions of the log"
WORDS = {
    "logged": "as the log decided",
    "inverse_propensity": "inverse propensity",
    "self_normalised": "self-normalised",
    "doubly_robust": "doubly robust",
}
"""The estimates of a log; the last three value this policy."""


def decisions_page(session: DecisionSession) -> str:
    """The whole document."""
    counts = session.counts
    data = ", ".join(name.rpartition("/")[2] for name in session.files) or "requests"
    learner = None if session.bandit is None else session.bandit.learner
    arms = [] if learner is None else learner.arms
    words = (
        f"{counts.decided:,} decisions among {len(arms):,} arms, {counts.rewarded:,} rewards; "
        f"{counts.logged:,} decisions of a log."
    )
    body = (
        f"<h1>Decisions for {escape(data)}</h1>"
        f'<p class="muted">{words}</p>\n'
        + _tiles(session)
        + _section(OWN, session.own, _own_values(session.own))
        + _section(LOG, session.log, _log_values(session))
        + _rows(session)
        + settings_table([("data", ", ".join(session.files)), ("arms", ", ".join(arms))], session.settings)
    )
    return document("decisions", body)


def _tiles(session: DecisionSession) -> str:
    found = []
    for name, record in (("own", session.own), ("log", session.log)):
        values = _own_values(record) if name == "own" else _log_values(session)
        if not values:
            continue
        told, best = next(iter(values)), next(key for key in values if key.startswith("always "))
        words = "reward a decision" if name == "own" else "reward a decision of the log"
        found.append((short(values[told].value), words, f"{short(values[best].value)} {clipped(best, 26)}"))
        if name == "log":
            policy = values[WORDS["doubly_robust"]]
            low, high = policy.interval()
            found.append((short(policy.value), "value of this policy", f"{short(low)} to {short(high)}"))
    if session.own.own.rows > 1:
        found.append(_regret(session.own))
    counts = session.counts
    found.append((f"{counts.decided:,}", "decisions", f"{counts.rewarded:,} rewards came"))
    found.append((f"{counts.rejected:,}", "rows rejected", f"of {counts.read:,} read"))
    return tiles(found)


def _regret(record: DecisionRecord) -> tuple[str, str, str]:
    """Rewards missed against the best single arm, as far as its value is known: rows (V(arm) - V(as decided))."""
    values = record.values()
    name, best = next((key, value) for key, value in values.items() if key.startswith("always "))
    rows, own = record.own.rows, values["as decided"].value
    low, high = (rows * (end - own) for end in best.interval())
    beside = f"{short(low)} to {short(high)}, against {clipped(name, 26)}"
    return short(rows * (best.value - own)), "estimated regret", beside


def _own_values(record: DecisionRecord) -> dict[str, Estimate]:
    return record.values()


def _log_values(session: DecisionSession) -> dict[str, Estimate]:
    """The log's policy, this one by three estimates, and simple ones."""
    simple = session.log.values()
    if session.sums.rows < 2 or not simple:
        return {}
    found = session.sums.estimates()
    values = {words: getattr(found, name) for name, words in WORDS.items()}
    return values | {name: value for name, value in simple.items() if name != "as decided"}


def _section(title: str, record: DecisionRecord, values: Mapping[str, Estimate]) -> str:
    if not record.decisions:
        return ""
    charts = [_rewards(record), _arms(record), _probabilities(record), _propensities(record)]
    charts.append(_values(values) if values else "")
    table = _alone(record) if values else ""
    return f'<h2>{escape(title)}</h2><div class="grid2">{"".join(charts)}</div>\n{table}\n'


def _series(record: DecisionRecord) -> dict[str, np.ndarray]:
    return {name: np.array(values, float) for name, values in record.series().items()}


def _rewards(record: DecisionRecord) -> str:
    series = _series(record)
    x, y = series["decision"], series["reward"]
    levels = {name: value for name, value in record.values().items() if name != "as decided"}
    axes = Axes((0, float(x[-1])), span(y, [value.value for value in levels.values()]), x_label="decisions")
    ends = [0.0, float(x[-1])]
    for kind, (name, value) in zip(("base", "ideal"), levels.items(), strict=False):
        axes.line(ends, [value.value] * 2, kind, name=name)
    axes.line(x.tolist(), y.tolist(), "own", name="mean reward")
    axes.dots(x.tolist(), y.tolist(), "dot") if len(x) < 3 else None
    axes.values(x.tolist(), y.tolist(), "mean reward")
    key = [("", "mean reward of a window"), *zip(("base", "ideal"), levels, strict=False)]
    note = "Lines across: what the policy would have earned over all decisions, estimated."
    return figure("Reward as it learned", axes.svg("Reward as it learned"), key, note if levels else "")


def _arms(record: DecisionRecord) -> str:
    """Shares of the arms, stacked; those that were chosen most from below."""
    series = _series(record)
    x = series["decision"]
    shares = {name.removeprefix("arm "): values for name, values in series.items() if name.startswith("arm ")}
    order = sorted(shares, key=lambda name: -float(shares[name].sum()))
    shown = {name: shares[name] for name in order[:SHOWN_ARMS]}
    if order[SHOWN_ARMS:]:
        shown[f"{len(order) - SHOWN_ARMS} others"] = np.sum([shares[name] for name in order[SHOWN_ARMS:]], axis=0)
    axes = Axes((0, float(x[-1])), (0, 1), x_label="decisions", y_format=".0%")
    below = np.zeros(len(x) + 1)
    for number, share in enumerate(shown.values()):
        above = below + np.append(share[:1], share)
        axes.band([0.0, *x.tolist()], below.tolist(), above.tolist(), f"share s{number}")
        below = above
    key = [(f"area s{number}", name) for number, name in enumerate(shown)]
    return figure("Arms over time", axes.svg("Arms over time"), key, "The share of the decisions of a window.")


def _probabilities(record: DecisionRecord) -> str:
    series = _series(record)
    x, y = series["decision"], series["probability"]
    axes = Axes((0, float(x[-1])), (0, 1), x_label="decisions")
    axes.line(x.tolist(), y.tolist(), "own", name="mean probability")
    axes.values(x.tolist(), y.tolist(), "mean probability")
    note = "The mean probability of the chosen arm: near 1, little is explored any more."
    return figure("Probability of the choice", axes.svg("Probability of the choice"), [], note)


def _propensities(record: DecisionRecord) -> str:
    counts = np.array(record.propensities, float)
    share = counts / max(counts.sum(), 1.0)
    axes = Axes((0, 1), (0, max(float(share.max()), 0.1)), x_label="probability of the chosen arm", y_format=".0%")
    middle = ((np.arange(BINS) + 0.5) / BINS).tolist()
    axes.columns(middle, share.tolist(), 0.085, "bar")
    axes.values(middle, share.tolist(), "decisions", ".1%")
    note = "Decisions by their probability. Small ones make values of other policies uncertain."
    return figure("Propensities", axes.svg("Propensities"), [], note)


def _values(values: Mapping[str, Estimate]) -> str:
    """A point and its 95% interval for each policy, under each other."""
    title = "Reward a decision, with 95% intervals"
    row, left, right, top = 30, 210, 20, 8
    low, high = span(*(list(value.interval()) for value in values.values()))
    room = (high - low) or 1.0
    place = lambda x: left + (x - low) / room * (WIDTH - left - right)  # noqa: E731
    parts = []
    for number, (name, value) in enumerate(values.items()):
        y = top + number * row + row / 2
        ends = value.interval()
        text = escape(f"{name}: {short(value.value)} ({short(ends[0])} to {short(ends[1])})")
        kind = "own" if number == 0 or name in WORDS.values() else "base"
        parts.append(
            f'<text class="tick" x="{left - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(clipped(name, 22))}</text>'
            f'<line class="line {kind}" x1="{place(ends[0]):.1f}" x2="{place(ends[1]):.1f}" y1="{y}" y2="{y}">'
            f'<title>{text}</title></line><circle class="{"dot" if kind == "own" else "seen"}" '
            f'cx="{place(value.value):.1f}" cy="{y}" r="4"><title>{text}</title></circle>'
        )
    height = top + row * len(values) + 22
    for x, anchor in ((low, "start"), (high, "end")):
        parts.append(f'<text class="tick" x="{place(x):.1f}" y="{height - 6}" text-anchor="{anchor}">{short(x)}</text>')
    chart = (
        f'<svg viewBox="0 0 {WIDTH} {min(height, 2 * HEIGHT)}" role="img" aria-label="{title}" '
        f'data-marks="{len(values)}">{"".join(parts)}</svg>'
    )
    note = "Values of policies that did not decide are estimates from the probabilities of the decisions."
    key = [
        ("", "this policy" if WORDS["logged"] not in values else "the log's policy and this one"),
        ("base", "others"),
    ]
    return figure(title, chart, key, note)


def _alone(record: DecisionRecord, most: int = 20) -> str:
    """A table of the arms: how often each was taken, what it paid, what it would have paid alone."""
    chosen: dict[str, int] = {}
    for window in record.windows:
        for name, count in window.chosen.items():
            chosen[name] = chosen.get(name, 0) + count
    body = ""
    for name in sorted(chosen, key=lambda name: -chosen[name])[:most]:
        cells: Sequence[str] = ("", "", "", "")
        if name in record.arms:
            sums, value = record.arms[name], record.alone(name)
            low, high = value.interval()
            effective = sums.estimates(modelled=False).effective
            cells = (
                short(sums.reward / sums.rows),
                short(value.value),
                f"{short(low)} to {short(high)}",
                f"{effective:,.0f}",
            )
        told = "".join(f'<td class="n">{cell}</td>' for cell in cells)
        body += f'<tr><td class="name">{escape(clipped(name, 30))}</td><td class="n">{chosen[name]:,}</td>{told}</tr>'
    head = "".join(f'<th class="n">{name}</th>' for name in ("chosen", "mean reward", "if always", "95%", "worth"))
    table = f"<table><thead><tr><th>arm</th>{head}</tr></thead><tbody>{body}</tbody></table>"
    note = (
        "Mean reward: of the decisions for this arm. If always: of all decisions, by self-normalised propensities. "
        "Worth: how many decisions of its own that estimate is worth; with few, the estimate says little."
    )
    return figures_table("Arms", table, note)


def _rows(session: DecisionSession) -> str:
    counts = vars(session.counts)
    parts = " + ".join(f"{name} {count:,}" for name, count in counts.items() if name != "read" and count)
    return f"<h2>Rows</h2><figure class=wide><p>read {session.counts.read:,} = {parts or '0'}</p></figure>\n"
