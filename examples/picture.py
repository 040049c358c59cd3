"""What the pictures share: one size of type, few lines, and colours that colour-blind readers can tell apart."""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, GREY = "#222222", "#9a9a9a"
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # Okabe and Ito's palette
GALLERY = Path(__file__).parent.parent / "docs" / "gallery"

plt.rcParams.update({
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": matplotlib.cycler(color=[BLUE, ORANGE, GREEN, PURPLE]),
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
})  # fmt: skip


def panels(count: int = 1, *, width: float = 8.0, height: float = 3.0, **options) -> tuple[Figure, list[Axes]]:
    """A row of `count` panels."""
    figure, axes = plt.subplots(1, count, figsize=(width, height), squeeze=False, **options)
    return figure, list(axes[0])


def save(figure: Figure) -> None:
    """Write the picture under the name of the script that drew it."""
    path = GALLERY / f"{Path(sys.argv[0]).stem}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    print(f"wrote docs/gallery/{path.name}, {path.stat().st_size / 1000:.0f} kB")
