"""The linear Gaussian filter of all candidates, on any number of series, candidates and laws at once (NumPy).

    x_t = F x_{t-1} + N(0, Q)      y_t = H x_t + N(0, R)

A regression is the case F = I, whose x are weights and whose H are inputs. `engine/state_filter.py` is the project's
general filter; this is its linear case for forecasts that are made when somebody asks, where a compilation would take
longer than the numbers (`tests/forecasting/test_filter.py` holds the two equal).
"""

from typing import NamedTuple

import numpy as np


class Belief(NamedTuple):
    """The mean (.., d) and the covariance (.., d, d) of x."""

    mean: np.ndarray
    cov: np.ndarray


class Gain(NamedTuple):
    """What a unit of error adds to x (.., d), the variance of the error (..), and cov H' (.., d)."""

    gain: np.ndarray
    variance: np.ndarray
    pushed: np.ndarray


def move(cov: np.ndarray, moved: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """F P F' + Q, symmetric."""
    predicted = moved @ cov @ np.swapaxes(moved, -1, -2) + noise
    return (predicted + np.swapaxes(predicted, -1, -2)) / 2


def gain_of(cov: np.ndarray, seen: np.ndarray, variance: np.ndarray | float) -> Gain:
    """P H' / (H P H' + R); `seen` is H (.., d)."""
    pushed = (cov @ seen[..., None])[..., 0]
    total = variance + (seen * pushed).sum(axis=-1)
    return Gain(pushed / total[..., None], total, pushed)


def learned(belief: Belief, gain: Gain, error: np.ndarray) -> Belief:
    """After an error (..) of y: m + K e, P - K (H P)."""
    return Belief(
        belief.mean + gain.gain * error[..., None], belief.cov - gain.gain[..., :, None] * gain.pushed[..., None, :]
    )
