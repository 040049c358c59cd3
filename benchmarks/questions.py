"""Figures of docs/questions.md, from what `natkal bench questions --json` printed: questions.py FILE docs/figures."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

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


def draw(part: str, rows: list[dict[str, Any]], folder: Path) -> None:
    """One panel for each model and group, one line for each setting, one dot with its interval for each stream."""
    panels = list(dict.fromkeys((row["model"], row["group"]) for row in rows))
    labels = [label for label in dict.fromkeys(row["setting"] for row in rows) if not _is_baseline(label, rows)]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(2.2 + 2.3 * len(panels), 1.2 + 0.28 * len(labels)), sharey=True, squeeze=False
    )
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    for axis, (model, group) in zip(axes[0], panels, strict=True):
        for row in rows:
            if (row["model"], row["group"]) != (model, group) or row["setting"] not in labels:
                continue
            height = labels.index(row["setting"]) + 0.6 * (streams.index(row["stream"]) / len(streams) - 0.4)
            colour = STREAMS[row["stream"]]
            axis.plot([row["low"], row["high"]], [height, height], color=colour, linewidth=1)
            axis.plot(row["difference"], height, "o", color=colour, markersize=3)
        axis.axvline(0, color="grey", linewidth=0.8)
        axis.set_xscale("symlog", linthresh=0.03)
        axis.set_xticks([-0.3, -0.03, 0, 0.03, 0.3, 3], ["-.3", "-.03", "0", ".03", ".3", "3"], fontsize=7)
        axis.minorticks_off()
        axis.set_title(f"{model}, {group}", fontsize=8)
    axes[0][0].set_yticks(range(len(labels)), labels, fontsize=7)
    axes[0][0].invert_yaxis()
    handles = [plt.Line2D([], [], color=STREAMS[name], marker="o", markersize=3, label=name) for name in streams]
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=7, frameon=False)
    figure.suptitle(f"{TITLES[part]}: change of log loss, negative is better", fontsize=9)
    figure.tight_layout(rect=(0, 0.6 / figure.get_figheight(), 1, 1))
    figure.savefig(folder / f"question-{part.replace('_', '-')}.svg", metadata={"Date": None})
    plt.close(figure)


def _is_baseline(label: str, rows: list[dict[str, Any]]) -> bool:
    return all(row["difference"] == 0 for row in rows if row["setting"] == label)


def best_by_method(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `averaging`, named by method alone."""
    return [{**row, "setting": row["method"]} for row in rows]


def main(source: str, target: str) -> None:
    """Draw every question in the file."""
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    results = json.loads(Path(source).read_text())
    plt.rcParams["svg.hashsalt"] = "natkal"
    for part in TITLES:
        if part in results:
            found = results[part]
            draw(part, best_by_method(found["best"]) if part == "averaging" else found["rows"], folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
