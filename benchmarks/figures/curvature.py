"""How far each curvature is from the dense filter, as a figure. Measures by itself."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.curvature import measured_distances

WINDOW = 50


def write(results: dict[str, Any], docs: Path) -> list[Path]:
    """Draw `curvature-distance.png`: KL after the last observation, and the cosine of the steps along the stream."""
    found = sorted(measured_distances(), key=lambda pair: float(pair[1].kl))
    figure, (bars, lines) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(found)))
    for place, ((_, far), colour) in enumerate(zip(found, colours, strict=True)):
        bars.barh(place, float(far.kl), color=colour)
        bars.text(float(far.kl), place, f" {float(far.kl):.2f}", va="center", fontsize=10)
        smooth = np.convolve(np.asarray(far.cosine), np.ones(WINDOW) / WINDOW, mode="valid")
        lines.plot(np.arange(len(smooth)) + WINDOW, smooth, color=colour, linewidth=1.5)
    bars.set_yticks(range(len(found)), [name for name, _ in found])
    bars.invert_yaxis()
    bars.margins(x=0.12)
    bars.set_xlabel("KL(structured || dense), nats per parameter")
    lines.set_xlabel("observations")
    lines.set_ylabel(f"cosine with the dense step, mean of {WINDOW}")
    lines.set_title("in the colours of the bars", fontsize=10)
    bars.set_title("after 500 digits", fontsize=10)
    for axes in (bars, lines):
        axes.spines[["top", "right"]].set_visible(False)
    path = docs / "curvature-distance.png"
    figure.savefig(path, dpi=110)
    return [path]
