"""Pictures of what was learned, with matplotlib: `pip install 'natkal[plot]'`.

Every function draws on `ax` (a new figure unless given), and returns it. A `source` is a `Run` of `nk.learn`, or what
`nk.run` returned as its second value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

COLOURS = ("#2459c9", "#c9722b", "#1d7f4e", "#8a4fb5", "#b8a02c", "#7b8494")
TENTHS = 10
WINDOWS = 64


def loss(source: Any, *, target: str = "", ax: Any = None) -> Any:
    """Log loss along the stream, each row predicted before it was learned from; of a run, beside its baseline."""
    ax = _axes(ax)
    if hasattr(source, "history"):
        history, prefix = source.history, f"{target}." if target else ""
        ax.plot(history["row"], history[f"{prefix}baseline_log_loss"], "--", color=COLOURS[1], label="baseline")
        ax.plot(history["row"], history[f"{prefix}log_loss"], color=COLOURS[0], label="natkal")
        ax.legend(frameon=False)
    else:
        values = -np.asarray(source.log_prob, float)
        edges = np.unique(np.linspace(0, len(values), min(WINDOWS, len(values)) + 1).astype(int))
        means = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
        ax.plot(edges[1:], means, color=COLOURS[0])
    ax.set(xlabel="rows", ylabel="log loss")
    return ax


def calibration(source: Any, targets: Any = None, *, ax: Any = None) -> Any:
    """How often what was predicted happened, in tenths; on the diagonal, or flat, where all is right.

    A run needs no targets. Otherwise give the info of `nk.run`, or a prediction of several rows, and the targets:
    classes show hits against probability, numbers the share of rows in each tenth of their predicted law.
    """
    ax = _axes(ax)
    if hasattr(source, "history"):
        table = source.calibration
    else:
        table = _calibration(getattr(source, "prediction", source), np.asarray(targets))
    if "share" in table:
        ax.bar(np.arange(TENTHS) / TENTHS + 0.05, table["share"], 0.085, color=COLOURS[0])
        ax.axhline(1 / TENTHS, ls=":", color="grey")
        ax.set(xlabel="tenth of the predicted law", ylabel="share of rows")
        return ax
    ax.plot([0, 1], [0, 1], ":", color="grey")
    sizes = 12 + 120 * table["rows"] / max(table["rows"].max(), 1)
    ax.scatter(table["probability"], table["hits"], s=sizes, color=COLOURS[0])
    ax.set(xlabel="predicted probability", ylabel="share of hits", xlim=(0, 1), ylim=(0, 1))
    return ax


def bands(prediction: Any, targets: Any = None, *, x: Any = None, level: float = 0.9, ax: Any = None) -> Any:
    """Mean and central interval of a prediction of several rows, and the targets as dots where given."""
    ax = _axes(ax)
    prediction = getattr(prediction, "prediction", prediction)
    low, high = (np.asarray(side, float).reshape(len(prediction.mean)) for side in prediction.interval(level))
    place = np.arange(len(low)) if x is None else np.asarray(x)
    order = np.argsort(place, kind="stable")
    ax.fill_between(place[order], low[order], high[order], color=COLOURS[0], alpha=0.2, lw=0, label=f"{level:.0%}")
    ax.plot(place[order], np.asarray(prediction.mean)[order, 0], color=COLOURS[0], label="predicted")
    if targets is not None:
        ax.plot(place, np.asarray(targets), ".", ms=3, color=COLOURS[1], label="observed")
    ax.legend(frameon=False)
    return ax


def weights(source: Any, *, ax: Any = None) -> Any:
    """The share of each member of a bank along the stream, stacked; those that had most in all from below."""
    ax = _axes(ax)
    if hasattr(source, "history"):
        history = source.history
        shares = {name.removeprefix("weight "): history[name] for name in history if name.startswith("weight ")}
        rows = history["row"]
    else:
        found = np.asarray(source.prediction.weights)
        found = found.sum(axis=-1) if found.ndim == 3 else found
        shares = {f"member {number + 1}": found[:, number] for number in range(found.shape[1])}
        rows = np.arange(1, len(found) + 1)
    if not shares:
        raise ValueError("weights: this learner is one filter, not a bank")
    order = sorted(shares, key=lambda name: -float(np.nansum(shares[name])))
    named = [name if number < len(COLOURS) else f"_{name}" for number, name in enumerate(order)]
    colours = [COLOURS[min(number, len(COLOURS) - 1)] for number in range(len(order))]
    ax.stackplot(rows, [shares[name] for name in order], labels=named, colors=colours, lw=0)
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    ax.set(xlabel="rows", ylabel="weight", ylim=(0, 1), xlim=(rows[0], rows[-1]))
    return ax


def fan(forecast: Any, observed: Any = None, *, ax: Any = None, levels: Sequence[float] = (0.5, 0.8, 0.9)) -> Any:
    """The rows ahead: the median, and central intervals that grow paler; `observed` are the values before them.

    `forecast` is what `Run.forecast` gives for one target and key, or a prediction of `learner.forecast`.
    """
    ax = _axes(ax)
    quantiles = _quantiles(forecast, [0.5, *(side for level in levels for side in ((1 - level) / 2, (1 + level) / 2))])
    before = np.zeros(0) if observed is None else np.asarray(observed, float)
    ahead = np.arange(1, len(quantiles[0.5]) + 1)
    ax.plot(np.arange(1 - len(before), 1), before, color="grey", label="observed")
    for level in sorted(levels, reverse=True):
        low, high = quantiles[_key((1 - level) / 2)], quantiles[_key((1 + level) / 2)]
        ax.fill_between(ahead, low, high, color=COLOURS[0], alpha=0.18, lw=0)
    ax.plot(ahead, quantiles[0.5], color=COLOURS[0], label="median")
    ax.set(xlabel="rows ahead")
    ax.legend(frameon=False)
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("nk.plot needs matplotlib: pip install 'natkal[plot]'") from error
    return plt.subplots(figsize=(6, 3.4), layout="constrained")[1]


def _calibration(prediction: Any, targets: np.ndarray) -> dict[str, np.ndarray]:
    try:
        probabilities = np.asarray(prediction.probabilities)
    except ValueError:
        ranks = np.asarray(prediction.cdf(targets), float).reshape(len(targets))
        share = np.bincount(np.clip((ranks * TENTHS).astype(int), 0, TENTHS - 1), minlength=TENTHS) / len(targets)
        return {"share": share}
    binary = probabilities.shape[1] == 2
    given = probabilities[:, 1] if binary else probabilities.max(axis=1)
    hit = (targets == 1) if binary else probabilities.argmax(axis=1) == targets
    where = np.clip((given * TENTHS).astype(int), 0, TENTHS - 1)
    rows = np.bincount(where, minlength=TENTHS).astype(float)
    with np.errstate(invalid="ignore"):
        sums = [np.bincount(where, values, TENTHS) / rows for values in (given, hit.astype(float))]
    return {"rows": rows, "probability": sums[0], "hits": sums[1]}


def _key(probability: float) -> float:
    return round(probability, 6)


def _quantiles(forecast: Any, wanted: Sequence[float]) -> dict[float, np.ndarray]:
    """Quantiles of every step: asked of a prediction, or read from the rows that `Run.forecast` gives."""
    if hasattr(forecast, "quantile") and hasattr(forecast, "mean") and not hasattr(forecast, "columns"):
        return {_key(q): np.asarray(forecast.quantile(q), float).reshape(len(forecast.mean)) for q in wanted}
    rows = forecast.to_dict("records") if hasattr(forecast, "iloc") else list(forecast)
    found = {}
    for q in wanted:
        name = f"q{round(100 * q):02d}"
        if name not in rows[0]:
            raise ValueError(f"fan: the forecast has no column {name!r}; give the rows of one numeric target")
        found[_key(q)] = np.array([row[name] for row in rows], float)
    return found
