"""Forecasts of each row before its target is seen, and their scores."""

from typing import Any, NamedTuple

import numpy as np

from benchmarks.streams.stream import Stream

BINS = 15
LEVELS = (0.9, 0.95)
SMOOTHED = 100
NEAR = 0.05
HIGHER_IS_BETTER = ("accuracy",)


class Forecast(NamedTuple):
    """Row by row: log p(y) in the target's own units, and the parts of the law that the scores need.

    `probs` (n, classes) for classification; `mean` (n,) elsewhere; `below` (n,) is P(Y < y), for regression. `width`
    (n,) is that of the central 95 percent interval, where it is known.
    """

    log_prob: np.ndarray
    probs: np.ndarray | None = None
    mean: np.ndarray | None = None
    below: np.ndarray | None = None
    width: np.ndarray | None = None

    def after(self, rows: int) -> "Forecast":
        """Without the first rows."""
        return Forecast(*(None if part is None else part[rows:] for part in self))  # pyright: ignore[reportArgumentType]


def log_loss(forecast: Forecast) -> float:
    """Mean of -log p(y), infinite where some row was impossible or not a number."""
    return float(np.nan_to_num(-np.asarray(forecast.log_prob, float), nan=np.inf).mean())


def calibration_error(probs: np.ndarray, targets: np.ndarray) -> float:
    """ECE: |accuracy - confidence| of the likeliest class, over 15 equal bins of confidence, weighted by their rows."""
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == targets
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(np.sum(right[bins == b] - confidence[bins == b])) for b in range(BINS)]
    return float(np.sum(gaps) / len(targets))


def errors(mean: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Root mean squared, mean absolute and root median squared error."""
    error = mean - targets
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "rmedse": float(np.median(np.abs(error))),  # the root of a median is the median of the roots
    }


def scores(forecast: Forecast, stream: Stream, first: int = 0) -> dict[str, Any]:
    """Log loss; accuracy and calibration, or errors and the coverage of central intervals; rows before `first` are out.

    Where the stream drifts, also what its drifts cost.
    """
    said, targets = forecast.after(first), stream.targets[first:]
    found: dict[str, Any] = {"log_loss": log_loss(said)}
    if said.probs is not None:
        found["accuracy"] = float((said.probs.argmax(axis=1) == targets).mean())
        found["calibration_error"] = calibration_error(said.probs, targets)
    if said.mean is not None:
        found |= errors(said.mean, targets)
    if said.below is not None:
        for level in LEVELS:
            outside = (1 - level) / 2
            inside = (said.below > outside) & (said.below < 1 - outside)
            found[f"coverage_{100 * level:.0f}"] = float(np.mean(inside))
    if said.width is not None:
        found["width_95"] = float(np.mean(said.width))
    if stream.drifts:
        found |= after_drifts(forecast.log_prob, stream.drifts)
    return found


def after_drifts(log_prob: np.ndarray, drifts: tuple[int, ...]) -> dict[str, float]:
    """What drifts cost, averaged over them; a concept's last 2,000 rows are its settled loss.

    `excess_after_drift`: nats lost above the settled loss in the 2,500 rows from the drift on. `reaction_rows`: rows
    until the mean loss of the last 100 rows is within 0.05 nats of the settled loss.
    """
    loss = -np.asarray(log_prob, float)
    ends = (*drifts[1:], len(loss))
    excess, reaction, settled = [], [], []
    for start, end in zip(drifts, ends, strict=True):
        level = loss[end - 2000 : end].mean()
        smoothed = np.convolve(loss[start:end], np.ones(SMOOTHED) / SMOOTHED, mode="valid")
        back = np.flatnonzero(smoothed <= level + NEAR)
        settled.append(level)
        excess.append(np.sum(loss[start : start + 2500] - level))
        reaction.append(back[0] + SMOOTHED if len(back) else end - start)
    return {
        "excess_after_drift": float(np.mean(excess)),
        "reaction_rows": float(np.mean(reaction)),
        "settled_loss": float(np.mean(settled)),
    }
