"""Cost of a step against p, from `python -m benchmarks dense growth peers --json`, as an SVG."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

GREY = "#808080"  # legible on white and on black, as the colours below
COLOURS = {"natkal": "#e4572e", "one read of P": GREY, "textbook scan": "#4c8fd6", "dynamax": "#3aa076"}
COLOURS |= {"cuthbert": "#a678d8", "filterpy": "#c79a2a", "posteriors": "#d16ba5"}


def lines_of(results: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Points (parameters, microseconds) of each method; natkal's from the run of the floor and the textbook scan."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in results["growth"]["rows"]:
        lines.setdefault("natkal", []).append((row["parameters"], row["step_us"]))
        lines.setdefault("one read of P", []).append((row["parameters"], row["floor_us"]))
        lines.setdefault("textbook scan", []).append((row["parameters"], row["step_us"] * row["textbook_ratio"]))
    for row in results["peers"]["rows"]:
        if "linear" not in row["method"] and row["method"] != "natkal":
            lines.setdefault(row["method"], []).append((row["parameters"], row["step_us"]))
    return lines


def write(results: dict[str, Any], docs: Path) -> list[Path]:
    """Draw `figures/cost.svg`."""
    lines = lines_of(results)
    plt.rcParams.update({"svg.hashsalt": "natkal", "font.size": 11, "text.color": GREY, "axes.labelcolor": GREY})
    plt.rcParams.update({"axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "svg.fonttype": "none"})
    figure = plt.figure(figsize=(8, 5), layout="constrained")
    axes = figure.gca()
    for name, points in lines.items():
        ours = name == "natkal"
        style = {"linestyle": "--", "marker": None} if name == "one read of P" else {"marker": "o", "markersize": 5}
        axes.loglog(*zip(*sorted(points), strict=True), color=COLOURS[name], linewidth=3 if ours else 1.8, **style)
        size, cost = max(points)
        axes.annotate(
            name,
            (size, cost),
            xytext=(
                8,
                {"one read of P": -7, "natkal": 4, "cuthbert": 10, "filterpy": 2, "posteriors": -8}.get(name, 0),
            ),
            textcoords="offset points",
            va="center",
            color=COLOURS[name],
            weight="bold" if ours else "normal",
        )
    axes.set_xlim(right=16_000)
    axes.set_xticks([200, 500, 1_000, 3_000, 6_000], ["200", "500", "1,000", "3,000", "6,000"])
    axes.set_yticks([10, 1e3, 1e5, 1e6], ["10 µs", "1 ms", "100 ms", "1 s"])
    axes.minorticks_off()
    axes.set_xlabel("parameters")
    axes.set_title("time per observation, float32, one output", loc="left", fontsize=11, color=GREY)
    axes.grid(axis="y", color=GREY, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    path = docs / "figures" / "cost.svg"
    figure.savefig(path, metadata={"Date": None}, transparent=True)
    return [path]
