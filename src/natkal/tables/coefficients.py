"""Coefficients of a linear model of one filter, in the user's units, with their standard errors.

The filter sees z = (x - c) / d and, of a number, (y - m) / s. With its output w'z + b,

    y = m + s (w'z + b)        slope s w / d,    intercept m + s (b - w'(c / d))
    log rate = w'z + b + log s                   (counts, divided by s)
    log-odds = w'z + b                           (classes)

The covariance of (b, w) is P; that of a number's filter is in units of the noise variance, which is learned beside it.
So the variance of the intercept is s^2 v'P v with v = (1, -c / d).
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from natkal.banks.units import scales
from natkal.compiling.float64 import float64
from natkal.tables.table import TableLearner


class Coefficients(NamedTuple):
    """One row of `weights` and an entry of `intercepts` for each output, with their standard errors."""

    weights: np.ndarray
    intercepts: np.ndarray
    weight_deviations: np.ndarray
    intercept_deviations: np.ndarray


@float64
def coefficients(table: TableLearner) -> Coefficients | None:
    """Those of the first target; None where the model is not linear or several filters are mixed."""
    learner = table.loop.learners[0]
    state = table.one()[0]
    linear = table.options.model in ("auto", "linear")
    if table.keyed or not (table.options.single and linear):
        return None
    layer = jax.tree.map(lambda leaf: np.asarray(leaf[0]), state.bank.members[0].params[0])
    cov = np.asarray(learner.covariance(state))
    centre, deviation = _input_units(table, state)
    location, scale = (0.0, 1.0) if state.targets is None else map(float, learner.units.target_units(state)[:2])
    support = learner.outputs.support
    factor = scale if support == "real" else 1.0
    shift = np.log(scale) if support == "count" else location
    laws: Any = learner.bank.laws.unweighted
    noise = _noise(state.bank.noise, laws.memories[0]) if support == "real" else 1.0
    # the parameters lie end to end, in the order of their names: bias before weight
    outputs = layer["bias"].size
    spread = np.sqrt(noise * np.diagonal(cov)[outputs:].reshape(layer["weight"].shape))
    weights = factor * layer["weight"] / deviation[:, None]
    intercepts = shift + factor * layer["bias"] - centre @ weights
    if state.late is not None:
        intercepts = intercepts + np.asarray(state.late.offsets)
    deviations = np.where(np.isinf(deviation)[:, None], np.inf, factor * spread / deviation[:, None])
    slope = np.concatenate([[1.0], -centre / deviation])
    per_output = np.stack([cov[at::outputs, at::outputs] for at in range(outputs)])
    intercept_deviations = factor * np.sqrt(noise * np.einsum("i,oij,j->o", slope, per_output, slope))
    own = slice(table.pasts[0].columns, table.pasts[0].columns + len(table.scaled))
    return Coefficients(weights[own].T, intercepts, deviations[own].T, intercept_deviations)


def _noise(heard: Any, span: float) -> float:
    """The noise variance in units of the target's, without the one innovation of size 1 that its law starts from.

    After n rows with discount d = 1 - 1/span, n_eff = d^n + (1 - d^n) span, of which d^n is that first innovation.
    """
    squares, count = float(heard.squares.ravel()[0]), float(heard.heard.ravel()[0])
    first = (span - count) / (span - 1)
    return max(squares - first, 0.0) / max(count - first, 1e-12)


def _input_units(table: TableLearner, state: Any) -> tuple[np.ndarray, np.ndarray]:
    """Centre and deviation of each input; that of a constant one is infinite, as it moves nothing."""
    columns = len(state.bank.members[0].params[0]["weight"][0])
    if state.inputs.features is None:
        return np.zeros(columns), np.ones(columns)
    centre, deviation = (np.asarray(part) for part in scales.location_scale(state.inputs.features))
    scaled = np.array([*table.pasts[0].scaled, *table.scaled, *[True] * (table.room - len(table.scaled))])
    return np.where(scaled, centre, 0.0), np.where(scaled, np.where(deviation > 0, deviation, np.inf), 1.0)
