"""One pass, one step ahead: natkal at one setting for all series, each rival at its best setting for each."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.recurrent import learners
from benchmarks.recurrent.learners import Forecasts
from benchmarks.recurrent.series import Series, all_series

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
WINDOWS = (2, 5, 20)
LEAST_SQUARES = tuple(itertools.product((0.1, 1.0, 10.0, 100.0), (0.0, 1e-3, 5e-3, 2e-2), (5e-3, 2e-2, 5e-2)))
"""Prior variance, fading, and memory of the error variance."""
SEEDS = 3


def scores(forecasts: Forecasts, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared error and mean negative log-likelihood, over time; infinite where not a number."""
    errors = np.square(np.asarray(forecasts.mean, float) - targets).mean(axis=-1)
    losses = -np.asarray(forecasts.log_prob, float).mean(axis=-1)
    return np.nan_to_num(errors, nan=np.inf), np.nan_to_num(losses, nan=np.inf)


def contest(report: Callable[[str], None], seeds: int = SEEDS, *, untuned: bool = False) -> dict[str, Any]:
    """A row for each series and method: both scores, and the settings that gave them.

    `untuned`: natkal is `nk.auto` on the network, instead of the mixture of this benchmark.
    """
    keys = jax.random.split(jax.random.key(0), seeds)
    own = {"prior_scales": learners.PRIOR_SCALES, "fadings": learners.FADINGS, "share": learners.SHARE}
    return {
        "natkal": {"units": learners.UNITS, **({} if untuned else own)},
        "grids": {"adam_rates": RATES, "windows": WINDOWS, "least_squares": LEAST_SQUARES},
        "seeds": seeds,
        "rows": [row for series in all_series() for row in _on(series, keys, report, untuned)],
    }


def _on(series: Series, keys: jax.Array, report: Callable[[str], None], untuned: bool) -> list[dict[str, Any]]:
    inputs, targets = (jnp.asarray(part, jnp.float32) for part in (series.inputs, series.targets))
    rates = jnp.asarray(RATES, jnp.float32)

    def adams(**options: Any) -> Forecasts:
        over_rates = jax.vmap(lambda key, rate: learners.adam(key, inputs, targets, rate, **options), (None, 0))
        return jax.jit(jax.vmap(over_rates, (0, None)))(keys, rates)

    report(f"{series.name}: natkal")
    if untuned:
        name, found = "natkal, nk.auto", learners.untuned(keys, inputs, targets)
    else:
        name, found = "natkal, RTRL", jax.jit(jax.vmap(lambda key: learners.natkal(key, inputs, targets)))(keys)
    ours = scores(found, series.targets)
    rows = [_row(series, name, ours[0].mean(), ours[1].mean(), "the same everywhere")]
    report(f"{series.name}: Adam, RTRL")
    rows.append(_best(series, "Adam, RTRL", scores(adams(), series.targets), [f"rate {rate:g}" for rate in RATES]))
    report(f"{series.name}: Adam, truncated BPTT")
    per_window = [scores(adams(sensitivity=nk.sensitivity.truncated(window)), series.targets) for window in WINDOWS]
    both = tuple(np.concatenate([one[which] for one in per_window], axis=1) for which in (0, 1))
    labels = [f"rate {rate:g}, {window} steps" for window in WINDOWS for rate in RATES]
    rows.append(_best(series, "Adam, truncated BPTT", both, labels))
    report(f"{series.name}: AR(8)")
    grid = [jnp.asarray(column, jnp.float32) for column in zip(*LEAST_SQUARES, strict=True)]
    fit = jax.vmap(lambda *setting: learners.recursive_least_squares(inputs, targets, *setting))
    fitted = scores(jax.jit(fit)(*grid), series.targets)
    labels = [f"prior {prior:g}, fading {fading:g}, memory {memory:g}" for prior, fading, memory in LEAST_SQUARES]
    rows.append(_best(series, "AR(8), least squares", (fitted[0][None], fitted[1][None]), labels))
    return rows


def _best(series: Series, method: str, found: tuple[np.ndarray, ...], labels: list[str]) -> dict[str, Any]:
    """Scores (seeds, settings): the best setting for each score, on the mean of the seeds."""
    errors, losses = (one.mean(axis=0) for one in found)
    by_error, by_loss = int(np.argmin(errors)), int(np.argmin(losses))
    return _row(series, method, errors[by_error], losses[by_loss], f"{labels[by_error]} | {labels[by_loss]}")


def _row(series: Series, method: str, error: float, loss: float, setting: str) -> dict[str, Any]:
    return {
        "series": series.name,
        "points": len(series.targets),
        "method": method,
        "mse": float(error),
        "nll": float(loss),
        "setting": setting,
    }
