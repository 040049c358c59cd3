"""Figures of a target of numbers against sums by hand."""

import numpy as np

from natkal.runs.metrics import Record, TargetMetrics
from natkal.tables.schema.infer import Target


def rows(guess: np.ndarray, observed: np.ndarray) -> Record:
    zeros = np.zeros(len(observed))
    return Record(guess, zeros + 1, zeros, zeros, zeros, zeros + 0.5, observed)


def test_the_first_value_counts_as_no_error_for_anyone() -> None:
    observed = np.array([316.0, 317.0, np.nan, 319.0])
    guess = np.array([0.0, 316.5, 317.0, 318.0])
    for cuts in ([4], [1, 4], [2, 3, 4]):
        part = TargetMetrics(Target("y", "regression", (), "said"))
        for first, last in zip([0, *cuts], cuts, strict=False):
            part.window(rows(guess[first:last], observed[first:last]))
        told = part.summary()
        np.testing.assert_allclose(told["mean_absolute_error"], (0.5 + 1.0) / 3)
        np.testing.assert_allclose(told["last_mean_absolute_error"], (1.0 + 2.0) / 3)
        np.testing.assert_allclose(told["baseline_mean_absolute_error"], (1.0 + 2.5) / 3)
        np.testing.assert_allclose(told["root_mean_squared_error"], np.sqrt((0.25 + 1.0) / 3))
