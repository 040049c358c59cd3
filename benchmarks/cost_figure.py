"""Cost of a step against p, from `natkal bench dense --part growth --part peers --json`, as an SVG.

natkal bench dense --part growth --part peers --json > cost.json
python benchmarks/cost_figure.py cost.json docs/cost.svg
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

source, figure = sys.argv[1:]
with open(source) as file:
    results = json.load(file)
lines: dict[str, list[tuple[float, float]]] = {}
for row in results["growth"]["rows"]:
    size, step = row["parameters"], row["step_us"]
    lines.setdefault("natkal, float32", []).append((size, step))
    lines.setdefault("one read of P, float32", []).append((size, row["floor_us"]))
    lines.setdefault("textbook scan, float32", []).append((size, step * row["textbook_ratio"]))
for row in results["peers"]["rows"]:
    lines.setdefault(f"{row['method']}, float64", []).append((row["parameters"], row["step_us"]))
plt.rcParams["svg.hashsalt"] = "natkal"
axes = plt.figure(figsize=(7, 4.5), layout="constrained").gca()
for name, points in lines.items():
    axes.loglog(*zip(*sorted(points), strict=True), marker="o", markersize=3, label=name)
axes.set_xlabel("parameters")
axes.set_ylabel("microseconds per observation")
axes.legend(frameon=False, fontsize=8)
axes.spines[["top", "right"]].set_visible(False)
axes.figure.savefig(figure, metadata={"Date": None})
