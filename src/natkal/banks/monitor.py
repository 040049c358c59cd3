"""Is the learner consistent with its data? Running figures along a stream, and an alarm."""

from typing import NamedTuple

import numpy as np

from natkal.banks.state import BankInfo


class Monitor(NamedTuple):
    """One value for each observation, all from what was known by then.

    `log_loss` is the mean so far. `surprise` is the mean of the squared normalised innovation over the last `window`
    observations, which should stay between `low` and `high` (95 percent of the time, where the law is right); `alarm`
    says that it does not. `memory` is how many observations are remembered, `prior_left` how much of the prior.
    """

    log_loss: np.ndarray
    surprise: np.ndarray
    low: np.ndarray
    high: np.ndarray
    alarm: np.ndarray
    memory: np.ndarray
    prior_left: np.ndarray


def monitor(info: BankInfo, *, window: int = 200) -> Monitor:
    """What `run` told, as running figures.

    The band is mean 1 plus or minus 1.96 standard errors, the spread of the surprise itself taken from the data (it is
    2 for a Gaussian, larger for counts and classes); nothing is alarming before half a window has been seen.
    """
    if window < 2:
        raise ValueError(f"window: must be at least 2, got {window}")
    seen = np.asarray(info.observed)
    count = np.maximum(np.cumsum(seen), 1)
    surprise = np.where(seen, np.asarray(info.surprise, float), 0.0)
    inside, total = _window(seen.astype(float), window), _window(surprise, window)
    squares = np.cumsum(np.square(surprise)) / count - np.square(np.cumsum(surprise) / count)
    margin = 1.96 * np.sqrt(np.maximum(squares, 2.0) / np.maximum(inside, 1.0))
    mean = total / np.maximum(inside, 1.0)
    return Monitor(
        log_loss=-np.cumsum(np.asarray(info.log_prob, float)) / count,
        surprise=mean,
        low=np.maximum(1 - margin, 0.0),
        high=1 + margin,
        alarm=(inside >= window / 2) & (np.abs(mean - 1) > margin),
        memory=np.asarray(info.memory, float),
        prior_left=np.asarray(info.prior_left, float),
    )


def _window(values: np.ndarray, window: int) -> np.ndarray:
    """Sums over the last `window` values."""
    sums = np.cumsum(values)
    return sums - np.concatenate([np.zeros(min(window, len(values))), sums[:-window]])
