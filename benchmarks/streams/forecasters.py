"""Rivals that every stream has (running frequencies, running mean, the last target) and those of series.

A series is forecast as it is and by its changes. AR(8) by recursive least squares and the recurrent networks are those
of `benchmarks/recurrent`; rows before their eight values are known get the last value.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.streams.attempt import Attempt
from benchmarks.streams.laws import around
from benchmarks.streams.scores import Forecast
from benchmarks.streams.stream import Stream

PACKAGE = "jax"
PRIORS, FADINGS = (0.1, 1.0, 10.0, 100.0), (0.0, 1e-3, 5e-3, 2e-2)


def attempts(stream: Stream) -> Iterator[Attempt]:
    """What is known without looking at the inputs."""
    if stream.kind == "classification":
        yield Attempt("class frequencies", "add one half", lambda: around(_frequencies(stream), stream))
        yield Attempt("last class", "", lambda: around(np.eye(stream.classes)[_last(stream, 1)], stream))
        return
    yield Attempt("running mean", "", lambda: around(_running_mean(stream), stream))
    yield Attempt("last value", "", lambda: around(_last(stream, 1), stream))
    if stream.columns:
        return
    if stream.period:
        name = f"period {stream.period}"
        yield Attempt("seasonal naive", name, lambda: around(_last(stream, stream.period), stream))
    for changes in (False, True):
        of = "of changes" if changes else "of values"
        for at, (prior, fading) in enumerate(itertools.product(PRIORS, FADINGS)):
            setting = f"{of}, prior {prior:g}, fading {fading:g}"
            yield Attempt("AR(8)", setting, _one_of(stream, changes, None, at))
        yield from _networks(stream, changes, of)


def _networks(stream: Stream, changes: bool, of: str) -> Iterator[Attempt]:
    from benchmarks.recurrent.contest import RATES, WINDOWS

    for window in (0, *WINDOWS):
        method = f"Adam, {'truncated BPTT' if window else 'RTRL'}"
        for at, rate in enumerate(RATES):
            setting = f"{of}, rate {rate:g}" + (f", {window} steps" if window else "")
            yield Attempt(method, setting, _one_of(stream, changes, window, at))


def _one_of(stream: Stream, changes: bool, window: int | None, at: int) -> Callable[[], Forecast]:
    """The run of one setting."""
    return lambda: around(_forecasts(stream, changes, window)[at], stream)


@functools.lru_cache(maxsize=1)
def _forecasts(stream: Stream, changes: bool, window: int | None) -> np.ndarray:
    """(settings, rows) in the series' units: AR(8), or a network by BPTT over `window` steps (0: by RTRL)."""
    from benchmarks.recurrent.series import LAGS, prepared

    values = stream.targets.astype(float)
    given = np.diff(values) if changes else values
    series = prepared(stream.name, given)
    scaled = _autoregressions(series) if window is None else _recurrent(series, window)
    said = given.mean() + given.std() * scaled
    first = LAGS + changes
    means = np.tile(_last(stream, 1).astype(float), (len(said), 1))
    means[:, first:] = said + values[first - 1 : -1] if changes else said
    return means


def _autoregressions(series: Any) -> np.ndarray:
    import jax
    import jax.numpy as jnp

    from benchmarks.recurrent.learners import recursive_least_squares

    grid = jnp.asarray(list(itertools.product(PRIORS, FADINGS)), jnp.float32).T
    rows = jnp.asarray(series.inputs, jnp.float32), jnp.asarray(series.targets, jnp.float32)
    fit = jax.jit(jax.vmap(lambda prior, fading: recursive_least_squares(*rows, prior, fading, 0.02).mean))
    return np.asarray(fit(*grid), float)


def _recurrent(series: Any, window: int) -> np.ndarray:
    import jax
    import jax.numpy as jnp

    import natkal as nk
    from benchmarks.recurrent.contest import RATES
    from benchmarks.recurrent.learners import adam

    options = {"sensitivity": nk.truncated(window)} if window else {}
    rows = jnp.asarray(series.inputs, jnp.float32), jnp.asarray(series.targets, jnp.float32)
    run = jax.jit(jax.vmap(lambda rate: adam(jax.random.key(0), *rows, rate, **options).mean))
    return np.asarray(run(jnp.asarray(RATES, jnp.float32)), float)


def _frequencies(stream: Stream) -> np.ndarray:
    before = np.cumsum(np.eye(stream.classes)[stream.targets], axis=0) - np.eye(stream.classes)[stream.targets]
    return (before + 0.5) / (before.sum(axis=1, keepdims=True) + 0.5 * stream.classes)


def _running_mean(stream: Stream) -> np.ndarray:
    values = stream.targets.astype(float)
    before = np.cumsum(values) - values
    return before / np.maximum(np.arange(len(values)), 1)


def _last(stream: Stream, period: int) -> np.ndarray:
    """The target `period` rows ago, before there is one the last, before that 0."""
    rows = np.arange(len(stream.targets))
    said = stream.targets[np.maximum(np.where(rows >= period, rows - period, rows - 1), 0)]
    return np.where(rows > 0, said, 0)
