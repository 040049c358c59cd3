"""Laws around what a model says, at their best in hindsight: rivals forecast classes or means, scores need laws.

Class probabilities are mixed with a uniform law, whose share is the best in hindsight (a tree gives 0 to a class that
it has not seen). Around a mean, a number gets the better of Gaussian and Student laws whose spread is a running one,
over a grid of memories, or the best constant in hindsight; a count gets the negative binomial that is best in
hindsight.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.streams.scores import Forecast, log_loss
from benchmarks.streams.stream import Stream

UNIFORM_SHARES = (1e-6, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3)
MEMORIES = (0.0, 0.003, 0.01, 0.03, 0.1)
FREEDOMS = (2.0, 4.0)
"""Degrees of freedom of the Student laws."""
SCALES = (0.5, 0.7, 1.0)
"""Scale of a Student law over the mean absolute error."""


def standardised(values: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and variance 1 over the whole stream: hindsight, which only rivals are given."""
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def target_scale(stream: Stream) -> tuple[float, float]:
    """Mean and spread of a regression's targets over the whole stream, which rivals are given; (0, 1) elsewhere."""
    return (float(stream.targets.mean()), float(stream.targets.std())) if stream.kind == "regression" else (0.0, 1.0)


def around(said: np.ndarray, stream: Stream) -> Forecast:
    """The best law in hindsight around probabilities (n, classes) or means (n,)."""
    match stream.kind:
        case "classification":
            return with_share(said, stream.targets)
        case "count":
            return counts(np.maximum(np.nan_to_num(said), 0.01), stream.targets)
        case _:
            return min(_number_laws(np.nan_to_num(said, posinf=0.0, neginf=0.0), stream.targets), key=log_loss)


def with_share(probs: np.ndarray, targets: np.ndarray) -> Forecast:
    """Class probabilities, made to add up to 1, with the best share of a uniform law."""
    sound = np.nan_to_num(probs)
    total = sound.sum(axis=1, keepdims=True)
    classes = probs.shape[1]
    whole = np.where(total > 0, sound / np.where(total > 0, total, 1.0), 1 / classes)
    found = []
    for share in UNIFORM_SHARES:
        mixed = (1 - share) * whole + share / classes
        found.append(Forecast(log_prob=np.log(mixed[np.arange(len(targets)), targets]), probs=mixed))
    return min(found, key=log_loss)


def gaussian(mean: np.ndarray, spread: np.ndarray, targets: np.ndarray) -> Forecast:
    """A Gaussian law for each row."""
    from scipy.special import ndtr

    sound = np.maximum(spread, 1e-12)
    z = np.clip((targets - mean) / sound, -1e9, 1e9)
    log_prob = -0.5 * z**2 - np.log(sound) - 0.5 * np.log(2 * np.pi)
    return Forecast(log_prob=log_prob, mean=mean, below=ndtr(z), width=2 * 1.959964 * sound)


def student(mean: np.ndarray, scale: np.ndarray, freedom: float, targets: np.ndarray) -> Forecast:
    """A Student law for each row."""
    from scipy.stats import t

    sound = np.maximum(scale, 1e-12)
    z = (targets - mean) / sound
    width = 2 * float(t.ppf(0.975, freedom)) * sound
    return Forecast(log_prob=t.logpdf(z, freedom) - np.log(sound), mean=mean, below=t.cdf(z, freedom), width=width)


def counts(mean: np.ndarray, targets: np.ndarray) -> Forecast:
    """Negative binomial laws around these means, with the r that is best in hindsight (1e6 is nearly Poisson)."""
    from scipy.stats import nbinom

    laws: list[Any] = [nbinom.logpmf(targets, r, r / (r + mean)) for r in 10.0 ** np.arange(-2, 6.1, 0.25)]
    best = max(laws, key=lambda log_prob: np.nan_to_num(log_prob.mean(), nan=-np.inf))
    return Forecast(log_prob=best, mean=mean)


def _number_laws(means: np.ndarray, targets: np.ndarray) -> Iterator[Forecast]:
    error = np.clip(np.abs(targets - means), 0.0, 1e150)
    yield gaussian(means, np.full_like(means, np.sqrt(np.mean(error**2))), targets)
    for memory in MEMORIES:
        # the spread before the first row is also given in hindsight
        yield gaussian(means, np.sqrt(_running(error**2, float(targets.var()), memory)), targets)
        size = _running(error, float(np.abs(targets - targets.mean()).mean()), memory)
        for freedom in FREEDOMS:
            for scale in SCALES:
                yield student(means, scale * size, freedom, targets)


def _running(values: np.ndarray, start: float, memory: float) -> np.ndarray:
    """The mean of the values before each row, fading at `memory`."""
    found, level = np.empty_like(values, dtype=float), start
    for number, value in enumerate(values):
        found[number] = level
        level += max(memory, 1 / (number + 2)) * (value - level)
    return found
