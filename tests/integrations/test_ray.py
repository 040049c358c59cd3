"""Actors of Ray, two here: the same learning as in one process, also where actors are killed."""

from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import ray

import natkal as nk
from natkal.keyed.keyed_fleet import KeyedFleet
from natkal.keyed.ray_workers import connect

SIZE = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    connect("local", "this test", cpus=2)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_fleet_on_ray_survives_its_actors(cluster: None, tmp_path: Path) -> None:
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE), nk.families.Gaussian(1.0))
    learner, rng = nk.online(model, prior_cov=1.0), np.random.default_rng(0)
    alone = KeyedFleet(learner, tmp_path / "alone", hot=64)
    fleet = nk.ray_fleet(learner, shards=2, folder=tmp_path / "fleet", hot=32, checkpoint_rows=100)
    for turn in range(6):
        ids, inputs, targets = rng.permutation(64)[:40], rng.normal(size=(40, SIZE)), rng.normal(size=40)
        told = fleet.learn([f"user {one}" for one in ids], inputs, targets)
        if turn in (2, 4):
            fleet.workers.executor.kill(turn // 2 - 1)
        wanted = alone.learn([f"user {one}" for one in ids], inputs, targets)
        np.testing.assert_array_equal(told.log_prob, wanted)
    assert fleet.workers.restarts >= 2
    assert len(fleet) == len(alone)
    saved = fleet.save(tmp_path / "saved")
    fleet.close()
    other = nk.ray_fleet(learner, shards=1, folder=tmp_path / "other", hot=32)
    other.load(saved)
    asked = rng.normal(size=(3, SIZE))
    names = ["user 1", "user 2", "nobody"]
    np.testing.assert_array_equal(other.predict(names, asked)["mean"], alone.predict(names, asked).mean)
    other.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_table_is_learned_on_ray_as_it_is_here(cluster: None) -> None:
    rng = np.random.default_rng(0)
    rows = [{"user": f"u{rng.integers(5)}", "a": float(rng.normal()), "y": float(rng.normal())} for _ in range(200)]
    runs = [
        nk.learn(rows, target="y", key="user", model="linear", learner="single", past="none", ray=address)
        for address in (None, "auto")
    ]
    assert runs[0].metrics == runs[1].metrics
