"""What the recurrent benchmark rests on: its rivals do what their names say, and its numbers can be checked by hand."""

import jax.numpy as jnp
import numpy as np
from benchmarks.recurrent import tables
from benchmarks.recurrent.classic import best_possible, counting_stream
from benchmarks.recurrent.learners import SHARE, Forecasts, mixed, recursive_least_squares
from benchmarks.recurrent.series import LAGS, mackey_glass


def test_recursive_least_squares_is_ridge_regression(rtol) -> None:
    """The last forecast is that of the ridge solution on all rows before it."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(40, LAGS)), rng.normal(size=40)
    found = recursive_least_squares(jnp.asarray(inputs), jnp.asarray(targets), 2.0, 0.0, 0.1)
    rows = np.concatenate([inputs, np.ones((40, 1))], axis=1)
    gram = rows[:-1].T @ rows[:-1] + np.eye(LAGS + 1) / 2.0
    weights = np.linalg.solve(gram, rows[:-1].T @ targets[:-1])
    np.testing.assert_allclose(found.mean[-1], rows[-1] @ weights, rtol=100 * rtol)


def test_a_mixture_is_never_far_behind_its_best_member() -> None:
    rng = np.random.default_rng(1)
    log_probs = rng.normal(size=(4, 200)) + np.array([[0.0], [0.5], [-1.0], [0.2]])
    found = mixed(Forecasts(mean=jnp.zeros((4, 200)), log_prob=jnp.asarray(log_probs)))
    allowed = np.log(4) / 200 - np.log(1 - SHARE)
    assert float(found.log_prob.mean()) > log_probs.mean(axis=1).max() - allowed
    poisoned = jnp.asarray(log_probs).at[0].set(jnp.nan)
    assert np.isfinite(mixed(Forecasts(mean=jnp.zeros((4, 200)), log_prob=poisoned)).log_prob).all()


def test_series_and_language() -> None:
    series = mackey_glass(length=50)
    np.testing.assert_allclose(series.inputs[1:, 0], series.targets[:-1])
    np.testing.assert_allclose(series.inputs[1:, 1:], series.inputs[:-1, :-1])
    stream = counting_stream(500)
    words = "".join("ab."[symbol] for symbol in stream).split(".")[:-1]
    assert all(word == "a" * (len(word) // 2) + "b" * (len(word) // 2) for word in words)
    assert 0 < best_possible(stream) < np.log(3)


def test_every_part_has_its_table() -> None:
    row = dict.fromkeys(("units", "parameters", "step_ms", "read_ms", "ratio"), 0.0)
    [(title, rows, columns)] = tables({"cost": {"rows": [row], "growth_exponent_in_units": 4.0}})
    assert "n^4.0" in title
    assert set(columns) <= set(rows[0])
