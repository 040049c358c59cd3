"""What the state correction does: the question the paper left open, over series, settings and seeds."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.recurrent.contest import scores
from benchmarks.recurrent.learners import Forecasts
from benchmarks.recurrent.series import Series, all_series
from natkal.paper.dictionary import fan_in_prior
from natkal.typing import Array

PRIORS = (0.1, 0.3, 1.0, 3.0, 10.0)
FADINGS = (0.0, 1e-3, 5e-3, 2e-2)
SEEDS, UNITS, POINTS = 3, 8, 600
DIVERGED = 4.0
"""A run has diverged when its mean squared error is not finite, or above this many times the variance of the series."""


def _learn(
    key: Array, inputs: Array, targets: Array, scale: Array, fading: Array, corrected: bool, cap: float | None
) -> Forecasts:
    """A plain tanh network on the last value alone, so that all it knows of the past is in its state."""
    model = nk.recurrent_network(
        key, nk.cells.tanh(UNITS), 1, nk.families.GaussianUnknownVariance(), state_correction=corrected
    )
    prior = jax.tree.map(lambda variance: scale * variance, fan_in_prior(model.params))
    learner = nk.online(model, prior_cov=prior, rates=nk.fading(fading), step_control=nk.step_control(cap=cap))

    def step(state: Any, row: Any) -> tuple[Any, Forecasts]:
        after, info = learner.step(state, *row)
        return after, Forecasts(info.prediction.mean[0], info.log_prob)

    return jax.lax.scan(step, learner.init(model.params), (inputs, targets))[1]


def correction(report: Callable[[str], None]) -> dict[str, Any]:
    """5 series x 20 settings x 3 seeds, with and without, for the textbook filter and for natkal's capped step."""
    settings = jnp.asarray(list(itertools.product(PRIORS, FADINGS)), jnp.float32)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    rows = [
        _row(series, keys, settings, corrected, cap, report)
        for series, cap, corrected in itertools.product(all_series(), (None, 3.0), (True, False))
    ]
    return {"settings": len(settings), "seeds": SEEDS, "units": UNITS, "points": POINTS, "rows": rows}


def _row(
    series: Series, keys: Array, settings: Array, corrected: bool, cap: float | None, report: Callable[[str], None]
) -> dict[str, Any]:
    report(f"{series.name}: state correction {'on' if corrected else 'off'}, cap {cap}")
    inputs = jnp.asarray(series.inputs[:POINTS, :1], jnp.float32)
    targets = jnp.asarray(series.targets[:POINTS], jnp.float32)
    over_settings = jax.vmap(
        lambda key, setting: _learn(key, inputs, targets, setting[0], setting[1], corrected, cap), (None, 0)
    )
    forecasts = jax.jit(jax.vmap(over_settings, (0, None)))(keys, settings)
    errors, losses = scores(forecasts, series.targets[:POINTS])
    diverged = ~(errors <= DIVERGED)
    return {
        "series": series.name,
        "step": "textbook" if cap is None else f"capped at {cap:g}",
        "state_correction": corrected,
        "diverged": float(diverged.mean()),
        "mse": float(errors[~diverged].mean()) if not diverged.all() else float("inf"),
        "nll": float(losses[~diverged].mean()) if not diverged.all() else float("inf"),
        "median_mse": float(np.median(errors)),
        "errors": np.where(np.isfinite(errors), errors, -1).round(5).tolist(),
    }
