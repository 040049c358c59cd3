"""M4 hourly by the protocol of GIFT-Eval, and the two simplest models, whose published figures it gives.

Each series has one window, its last 48 values. MASE: the absolute error of the median over the mean absolute change in
a day of everything before the window, in the mean over series and steps. WQL: for each of nine quantiles
twice the sum of the pinball losses over the sum of absolute values, and the mean of the nine.

The data are a folder with `m4-hourly-train.csv`, `m4-hourly-test.csv` and `published.csv` (columns task, model, MASE,
WQL), named by the environment variable NATKAL_FORECASTS.
"""

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

FOLDER = "NATKAL_FORECASTS"
QUANTILES = tuple(round(0.1 * step, 1) for step in range(1, 10))
NORMAL = np.array([NormalDist().inv_cdf(q) for q in QUANTILES])[:, None]
DAY, TOGETHER = 24, 64
TASK = "m4_hourly/H/short"


class Window(NamedTuple):
    """One forecast to make: the name of the series, all values before it, and those that came."""

    series: str
    before: np.ndarray
    came: np.ndarray


def folder() -> Path:
    """The folder of the data."""
    if FOLDER not in os.environ:
        raise SystemExit(
            f"{FOLDER} must name the folder with m4-hourly-train.csv, m4-hourly-test.csv and published.csv"
        )
    return Path(os.environ[FOLDER])


def windows() -> list[Window]:
    """Those of the task: one for each series."""
    before, came = (_rows(folder() / f"m4-hourly-{part}.csv") for part in ("train", "test"))
    return [Window(name, values, came[name]) for name, values in before.items()]


def _rows(path: Path) -> dict[str, np.ndarray]:
    with path.open() as file:
        rows = list(csv.reader(file))[1:]
    return {row[0]: np.array([float(cell) for cell in row[1:] if cell]) for row in rows}


def published() -> dict[str, tuple[float, float]]:
    """MASE and WQL of each published model."""
    with (folder() / "published.csv").open() as file:
        return {
            row["model"]: (float(row["MASE"]), float(row["WQL"])) for row in csv.DictReader(file) if row["task"] == TASK
        }


def scores(asked: Sequence[Window], told: Sequence[np.ndarray]) -> tuple[float, float]:
    """MASE and WQL of quantiles (9, horizon) for each window."""
    scaled, losses, size = [], np.zeros(len(QUANTILES)), 0.0
    shares = np.array(QUANTILES)[:, None]
    for one, quantiles in zip(asked, told, strict=True):
        scale = np.abs(one.before[DAY:] - one.before[:-DAY]).mean()
        scaled.append(np.abs(one.came - quantiles[len(QUANTILES) // 2]).mean() / scale)
        away = one.came - quantiles
        losses += 2 * np.where(away >= 0, shares * away, (shares - 1) * away).sum(axis=1)
        size += np.abs(one.came).sum()
    return float(np.mean(scaled)), float((losses / size).mean())


def naive(before: np.ndarray, horizon: int) -> np.ndarray:
    """Quantiles of the last value, with the deviation of the changes so far growing as that of a walk."""
    deviation = np.sqrt(np.mean(np.diff(before) ** 2)) * np.sqrt(np.arange(1, horizon + 1))
    return before[-1] + deviation * NORMAL


def seasonal_naive(before: np.ndarray, horizon: int) -> np.ndarray:
    """Quantiles of the last day, with the deviation of the changes in a day so far."""
    steps = np.arange(horizon)
    deviation = np.sqrt(np.mean((before[DAY:] - before[:-DAY]) ** 2)) * np.sqrt(steps // DAY + 1)
    return before[-DAY + steps % DAY] + deviation * NORMAL


SIMPLE: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {"naive": naive, "seasonal_naive": seasonal_naive}


def learned(asked: Sequence[Window], report: Callable[[str], None]) -> tuple[list[np.ndarray], float]:
    """Quantiles of `nk.learn` with nothing said for each window, and the share of values inside the 90% intervals."""
    import natkal as nk
    from natkal.forecasting.paths import combined, mixture

    told: list[np.ndarray] = []
    inside: list[np.ndarray] = []
    for first in range(0, len(asked), TOGETHER):
        part = asked[first : first + TOGETHER]
        drawn = []
        for one in part:
            run = nk.learn([{"y": value} for value in one.before.tolist()], target="y", progress=False)
            drawn.append(mixture(run._session.learner, len(one.came)))
        for one, paths in zip(part, combined(drawn), strict=True):
            told.append(np.quantile(paths, QUANTILES, axis=0))
            low, high = np.quantile(paths, [0.05, 0.95], axis=0)
            inside.append((low <= one.came) & (one.came <= high))
        report(f"{len(told)} of {len(asked)} series, MASE {scores(asked[: len(told)], told)[0]:.3f}")
    return told, float(np.mean(inside))
