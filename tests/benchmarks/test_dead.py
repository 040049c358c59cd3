"""No network of the grid falls silent; `python -m benchmarks dead` runs all of it."""

import jax
import numpy as np
import pytest
from benchmarks.dead_networks import NETWORKS

from benchmarks import dead


@pytest.mark.slow
@pytest.mark.float64  # float32 inside
@pytest.mark.parametrize("network", ["mlp of 4", "convolutions"])
def test_no_prior_ends_above_a_constant_prediction(network: str) -> None:
    result = dead.run_part(network, lambda note: None, rows=240)
    assert result["passed"], result["rows"]


def test_every_network_depends_on_its_input() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
    for make in NETWORKS.values():
        params, apply = make(np.random.default_rng(1))
        params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
        with jax.numpy_rank_promotion("allow"):
            apart = np.abs(np.asarray(apply(params, first)) - np.asarray(apply(params, second)))
        assert apart.max() > 1e-3
