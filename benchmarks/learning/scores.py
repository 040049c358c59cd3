"""What a forecaster said of each row before seeing its target, and how good that was."""

from typing import Any, NamedTuple

import numpy as np

from benchmarks.learning.streams import Stream

BINS = 15
LEVEL = 0.9
SMOOTHED = 100
NEAR = 0.05


class Forecast(NamedTuple):
    """Row by row: log p(y) in the target's own units, and the law's parts that the scores need.

    `probs` (n, classes) for classification; `mean` (n,) elsewhere; `below` (n,) is P(Y < y), for regression.
    """

    log_prob: np.ndarray
    probs: np.ndarray | None = None
    mean: np.ndarray | None = None
    below: np.ndarray | None = None


def log_loss(forecast: Forecast) -> float:
    """Mean of -log p(y), infinite where some row was impossible or not a number."""
    return float(np.nan_to_num(-np.asarray(forecast.log_prob, float), nan=np.inf).mean())


def calibration_error(probs: np.ndarray, targets: np.ndarray) -> float:
    """ECE: |accuracy - confidence| of the likeliest class, over 15 equal bins of confidence, weighted by their rows."""
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == targets
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(np.sum(right[bins == b] - confidence[bins == b])) for b in range(BINS)]
    return float(np.sum(gaps) / len(targets))


def scores(forecast: Forecast, stream: Stream) -> dict[str, Any]:
    """Log loss; accuracy and calibration, or root mean squared error and coverage of central 90 percent intervals."""
    found: dict[str, Any] = {"log_loss": log_loss(forecast)}
    if forecast.probs is not None:
        found["accuracy"] = float((forecast.probs.argmax(axis=1) == stream.targets).mean())
        found["calibration_error"] = calibration_error(forecast.probs, stream.targets)
    if forecast.mean is not None:
        found["rmse"] = float(np.sqrt(np.mean((forecast.mean - stream.targets) ** 2)))
    if forecast.below is not None:
        outside = (1 - LEVEL) / 2
        found["coverage_90"] = float(np.mean((forecast.below > outside) & (forecast.below < 1 - outside)))
    if stream.drifts:
        found.update(after_drifts(forecast.log_prob, stream.drifts))
    return found


def after_drifts(log_prob: np.ndarray, drifts: tuple[int, ...]) -> dict[str, float]:
    """How a forecaster takes drifts, averaged over them; a concept's last 2,000 rows are its settled loss.

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
