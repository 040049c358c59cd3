"""Parts of benchmarks whose figures documents name still run, at a tiny size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.learning import ours

import natkal as nk
from benchmarks import curvature, gpu, step_control
from tests.benchmarks.made_up import made_up


def test_product_of_one_triangle() -> None:
    rows = {row["how"]: row for row in gpu.product(lambda note: None)["rows"]}
    assert rows["one triangle"]["error"] < 1e-6


def test_a_pass_of_auto_over_digits() -> None:
    inputs, targets = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 10
    rows = jnp.asarray(inputs, jnp.float32), jnp.asarray(targets)
    stream = curvature.Stream(*rows, *(part[:5] for part in rows), (4, 2, 10))
    params = nk.mlp_params(jax.random.key(0), stream.sizes)
    row, _, _ = curvature.untuned("auto", nk.diagonal(), 2, stream, params)
    assert np.isfinite(row["log_loss"])
    assert row["kept_MB"] > 0


@pytest.mark.parametrize("kind", [pytest.param("classification", marks=pytest.mark.slow), "regression"])
def test_a_pass_of_auto_over_a_stream(kind) -> None:
    found = ours.automatic(made_up(kind, rows=40))
    assert np.isfinite(found.forecast.log_prob).all()
    if kind == "regression":
        assert found.forecast.below is not None
        assert ((found.forecast.below >= 0) & (found.forecast.below <= 1)).all()


def test_a_step_control_on_logistic_regressions() -> None:
    assert np.isfinite(step_control.logistic(nk.step_control(cap=3.0))["mean log-likelihood"])
