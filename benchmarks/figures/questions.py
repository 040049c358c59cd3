"""Figures and tables of docs/questions.md, from `python -m benchmarks questions --json`."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from benchmarks.figures import between_marks, markdown

STREAMS = {
    "digits 4x4": "#1f77b4",
    "image segments": "#ff7f0e",
    "phishing": "#2ca02c",
    "breast cancer": "#d62728",
    "diabetes": "#9467bd",
    "solar flare": "#8c564b",
    "sea, drifting": "#111111",
    "made up, ill-conditioned": "#17becf",
}
TITLES = {
    "decay": "Fisher decay gamma, against gamma = eta",
    "prior_weight": "Prior kept at weight n (Prop. 4), against the same start forgotten",
    "prior_scale": "Prior covariance, against 1/fan-in",
    "schedule": "Learning rate, against 1/(t+1)",
    "fisher": "Fisher matrix, against the exact one",
    "averaging": "Best setting in hindsight, against the natural gradient at 3/fan-in",
}


def draw(part: str, rows: list[dict[str, Any]], folder: Path) -> Path:
    """One panel for each model and group, one line for each setting, one dot with its interval for each stream."""
    panels = list(dict.fromkeys((row["model"], row["group"]) for row in rows))
    labels = [label for label in dict.fromkeys(row["setting"] for row in rows) if not _is_baseline(label, rows)]
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(9, 1.0 + lines * (0.7 + 0.22 * len(labels))), sharey=True, squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    for axis, (model, group) in zip(axes.flat, panels, strict=False):
        for row in rows:
            if (row["model"], row["group"]) != (model, group) or row["setting"] not in labels:
                continue
            height = labels.index(row["setting"]) + 0.6 * (streams.index(row["stream"]) / len(streams) - 0.4)
            colour = STREAMS[row["stream"]]
            axis.plot([row["low"], row["high"]], [height, height], color=colour, linewidth=1)
            axis.plot(row["difference"], height, "o", color=colour, markersize=3)
        axis.axvline(0, color="grey", linewidth=0.8)
        axis.set_xscale("symlog", linthresh=0.03)
        axis.set_xticks([-0.3, -0.03, 0, 0.03, 0.3, 3], ["-.3", "-.03", "0", ".03", ".3", "3"], fontsize=8)
        axis.minorticks_off()
        axis.set_title(f"{model}, {group}", fontsize=9)
    axes[0][0].set_yticks(range(len(labels)), labels)
    for axis in axes.flat:
        axis.tick_params(axis="y", labelsize=8)
    axes[0][0].invert_yaxis()
    handles = [Line2D([], [], color=STREAMS[name], marker="o", markersize=3, label=name) for name in streams]
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(f"{TITLES[part]}: change of log loss, negative is better", fontsize=10)
    figure.tight_layout(rect=(0, 0.6 / figure.get_figheight(), 1, 1))
    path = folder / f"question-{part.replace('_', '-')}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def _is_baseline(label: str, rows: list[dict[str, Any]]) -> bool:
    return all(row["difference"] == 0 for row in rows if row["setting"] == label)


def best_by_method(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `averaging`, named by method alone."""
    return [{**row, "setting": row["method"]} for row in rows]


def table(part: str, found: dict[str, Any]) -> str:
    """Markdown: the median over streams, and how many streams are clearly better and worse."""
    if part == "averaging":
        rows = best_by_method(found["best"])
        columns = list(dict.fromkeys(row["setting"] for row in rows))
        cells = {(row["stream"], row["model"], row["setting"]): f"{row['log_loss']:.4f}" for row in rows}
        names = list(dict.fromkeys((row["stream"], row["model"]) for row in rows))
        lines = [[", ".join(name), *(cells.get((*name, column), "") for column in columns)] for name in names]
        return markdown(["stream, model", *columns], lines)
    rows = found["summary"]
    columns = list(dict.fromkeys((row["model"], row["group"]) for row in rows))
    shown = [row for row in rows if _cell(row) != "0"]  # the baseline says nothing of itself
    settings = list(dict.fromkeys(row["setting"] for row in shown))
    cells = {(row["model"], row["group"], row["setting"]): _cell(row) for row in rows}
    lines = [[setting, *(cells.get((*column, setting), "") for column in columns)] for setting in settings]
    return markdown(["setting", *(", ".join(column) for column in columns)], lines)


def _cell(row: dict[str, Any]) -> str:
    if row["better"] == row["worse"] == 0 and row["median_difference"] == 0:
        return "0"
    return f"{row['median_difference']:+.3f} ({row['better']}, {row['worse']})"


def write(results: dict[str, Any], docs: Path) -> list[Path]:
    """Draw every question that was asked, and put its table into the page."""
    page, folder = docs / "questions.md", docs / "figures"
    plt.rcParams |= {"svg.hashsalt": "natkal", "svg.fonttype": "none"}
    written = [page]
    for part in TITLES:
        if part in results:
            found = results[part]
            rows = best_by_method(found["best"]) if part == "averaging" else found["rows"]
            written.append(draw(part, rows, folder))
            between_marks(page, part, table(part, found))
    return written
