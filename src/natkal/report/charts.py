"""Charts as SVG text: no library, no script; colours come from the page's style, so that they follow light and dark."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from natkal.report.timeline import date_text, date_ticks

WIDTH, HEIGHT = 480, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 38
Number = int | float
POINTS = 400
"""A line is drawn through at most this many points."""


class Axes:
    """A plotting area with ticks and grid, and a map from data to it."""

    def __init__(
        self,
        x: tuple[Number, Number],
        y: tuple[Number, Number],
        *,
        x_label: str = "",
        log_y: bool = False,
        y_format: str = "",
        dates: bool = False,
    ):
        self._dates = dates
        self._x = _widened(*x)
        self._log = log_y
        self._y = _widened(*(math.log10(value) for value in y)) if log_y else _widened(*y)
        self._parts: list[str] = []
        self.marks = 0
        self._draw_grid(x_label, y_format)

    def place(self, x: Number, y: Number) -> tuple[Number, Number]:
        """Where a data point lies on the picture."""
        y = math.log10(max(y, 1e-300)) if self._log else y
        across = (x - self._x[0]) / (self._x[1] - self._x[0])
        up = (y - self._y[0]) / (self._y[1] - self._y[0])
        up = min(max(up, -0.02), 1.02)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def line(self, x: Sequence[Number], y: Sequence[Number], kind: str, *, name: str = "") -> None:
        """A line through the finite points."""
        points = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
        step = max(1, math.ceil(len(points) / POINTS))
        path = " ".join("{:.1f},{:.1f}".format(*self.place(*point)) for point in [*points[::step], *points[-1:]])
        if points:
            self._add(f'<polyline class="line {kind}" points="{path}"><title>{escape(name)}</title></polyline>')

    def values(self, x: Sequence[Number], y: Sequence[Number], name: str, y_format: str = "") -> None:
        """Points that are not drawn and tell their value where the pointer rests on them."""
        for a, b in zip(x, y, strict=True):
            if math.isfinite(a) and math.isfinite(b):
                across, up = self.place(a, b)
                text = escape(f"{name}: {short(b, y_format)} at {self._x_text(a)}")
                self._parts.append(
                    f'<circle class="value" cx="{across:.1f}" cy="{up:.1f}" r="7"><title>{text}</title></circle>'
                )

    def marks_at(self, x: Sequence[Number], name: str) -> None:
        """Upright lines at these places."""
        for a in x:
            across, _ = self.place(a, 1.0)
            self._add(
                f'<line class="mark" x1="{across:.1f}" x2="{across:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">'
                f"<title>{escape(name)} at {self._x_text(a)}</title></line>"
            )

    def band(self, x: Sequence[Number], low: Sequence[Number], high: Sequence[Number], kind: str) -> None:
        """The area between two lines."""
        keep = [i for i in range(len(x)) if math.isfinite(low[i]) and math.isfinite(high[i])]
        there = [self.place(x[i], high[i]) for i in keep]
        back = [self.place(x[i], low[i]) for i in reversed(keep)]
        if keep:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*there, *back])
            self._add(f'<polygon class="{kind}" points="{path}"/>')

    def dots(self, x: Sequence[Number], y: Sequence[Number], kind: str, sizes: Sequence[Number] | None = None) -> None:
        """Points, of radius 2.2 unless sizes are given."""
        for i, (a, b) in enumerate(zip(x, y, strict=True)):
            if math.isfinite(a) and math.isfinite(b):
                across, up = self.place(a, b)
                radius = 2.2 if sizes is None else sizes[i]
                self._add(f'<circle class="{kind}" cx="{across:.1f}" cy="{up:.1f}" r="{radius:.1f}"/>')

    def columns(self, x: Sequence[Number], y: Sequence[Number], width: float, kind: str) -> None:
        """Bars standing on the axis."""
        for a, b in zip(x, y, strict=True):
            left, top = self.place(a - width / 2, b)
            right, bottom = self.place(a + width / 2, self._y[0] if not self._log else 10 ** self._y[0])
            self._add(
                f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                f'height="{max(bottom - top, 0):.1f}"/>'
            )

    def svg(self, title: str) -> str:
        """The finished chart."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" data-marks="{self.marks}">'
            f"{''.join(self._parts)}</svg>"
        )

    def _x_text(self, x: Number) -> str:
        return date_text(x) if self._dates else short(x)

    def _add(self, mark: str) -> None:
        self._parts.append(mark)
        self.marks += 1

    def _draw_grid(self, x_label: str, y_format: str) -> None:
        for tick in ticks(*self._y, whole=self._log):
            value = 10**tick if self._log else tick
            _, up = self.place(self._x[0], value)
            text = short(value, y_format)
            self._parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up:.1f}" y2="{up:.1f}"/>')
            self._parts.append(f'<text class="tick" x="{LEFT - 6}" y="{up + 4:.1f}" text-anchor="end">{text}</text>')
        across_ticks = [(tick, short(tick)) for tick in ticks(*self._x, about=4)]
        for tick, text in date_ticks(*self._x) if self._dates else across_ticks:
            across, below = self.place(tick, 1.0)[0], HEIGHT - BOTTOM + 16
            room = 30 if self._dates else 12
            anchor = "end" if across > WIDTH - RIGHT - room else "middle"
            self._parts.append(f'<text class="tick" x="{across:.1f}" y="{below}" text-anchor="{anchor}">{text}</text>')
        if x_label:
            middle = (LEFT + WIDTH - RIGHT) / 2
            self._parts.append(
                f'<text class="label" x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{escape(x_label)}</text>'
            )


def bars(names: Sequence[str], values: Sequence[Number], title: str) -> str:
    """Horizontal bars, one for each name, the longest filling the width."""
    row, left = 24, 180
    height = row * len(names) + 8
    longest = max([*values, 1e-300])
    parts = []
    shown = clipped_apart(names, 18)
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        top = 4 + i * row
        length = (WIDTH - left - 84) * value / longest
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{top + 15}" text-anchor="end">{escape(shown[i])}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="bar" x="{left}" y="{top + 3}" width="{max(length, 1):.1f}" height="{row - 7}" rx="2"/>'
            f'<text class="tick" x="{left + length + 6:.1f}" y="{top + 15}">{short(value)}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" data-marks="{len(names)}">'
        f"{''.join(parts)}</svg>"
    )


def clipped(name: str, longest: int = 20) -> str:
    """A name short enough for a label: its beginning and its end, which is where long names differ."""
    if len(name) <= longest:
        return name
    end = longest * 2 // 5
    return f"{name[: longest - end - 1]}…{name[-end:]}"


def clipped_apart(names: Sequence[str], longest: int = 20) -> list[str]:
    """Names short enough for labels, each `clipped`; those that would look alike are numbered."""
    shown = [clipped(name, longest) for name in names]
    alike = {label for label in shown if shown.count(label) > 1}
    seen: dict[str, int] = {}
    found = []
    for label, name in zip(shown, names, strict=True):
        seen[label] = seen.get(label, 0) + 1
        number = f" ({seen[label]})"
        found.append(f"{name[: longest - len(number) - 1]}…{number}" if label in alike else label)
    return found


def ticks(low: Number, high: Number, *, about: int = 5, whole: bool = False) -> list[Number]:
    """Round numbers between low and high, about so many."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    return [round(i * float(step), 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: Number, form: str = "") -> str:
    """A number as one reads it on an axis: 0.25, 1,200, 45k, 1e-6."""
    if form:
        return format(value, form)
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    for limit, letter in ((1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / {'M': 1e6, 'k': 1e3}[letter]:.4g}{letter}"
    return f"{value:,.4g}" if size < 1000 else f"{value:,.0f}"


def span(*series: Sequence[Number] | np.ndarray, trim: float = 0.0) -> tuple[Number, Number]:
    """From the smallest to the largest finite value of all series; with `trim`, without that share at either end."""
    values = np.concatenate([np.asarray(one, float).ravel() for one in series])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = np.quantile(values, [trim, 1 - trim])
    return float(low), float(high)


def _widened(low: Number, high: Number) -> tuple[Number, Number]:
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
        return low - 0.5 * max(abs(low), 1.0), high + 0.5 * max(abs(high), 1.0)
    return low, high
