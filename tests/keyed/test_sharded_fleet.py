"""Workers that die: nothing is lost, and nothing counts twice."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.keyed.keyed_fleet import KeyedFleet
from natkal.keyed.sharded_fleet import FleetShard, ShardedFleet, shard_folder
from natkal.keyed.workers import Here, WorkerLost, Workers

SIZE = 2


def make_learner() -> nk.Learner:
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE), nk.families.Gaussian(1.0))
    return nk.online(model, prior_cov=1.0)


@pytest.mark.slow
def test_workers_that_die_change_no_bit(tmp_path: Path) -> None:
    learner, rng = make_learner(), np.random.default_rng(0)
    alone = KeyedFleet(learner, tmp_path / "alone", hot=64)
    here = Here(lambda worker: FleetShard(learner, shard_folder(tmp_path / "fleet", worker), hot=32))
    fleet = ShardedFleet(learner, here, tmp_path / "fleet", 2, checkpoint_rows=150)
    for turn in range(10):
        ids, inputs, targets = rng.permutation(64)[:40], rng.normal(size=(40, SIZE)), rng.normal(size=40)
        if turn in (3, 7, 8):
            here.kill(turn % 2)
        told = fleet.learn(ids, inputs, targets)
        np.testing.assert_array_equal(told.log_prob, alone.learn(ids, inputs, targets))
    here.kill(0)
    assert fleet.workers.restarts == 3
    assert len(fleet) == len(alone)
    asked = rng.normal(size=(64, SIZE))
    wanted = alone.predict(np.arange(64), asked)
    np.testing.assert_array_equal(fleet.predict(np.arange(64), asked)["mean"], wanted.mean)
    saved = fleet.save(tmp_path / "saved")
    three = Here(lambda worker: FleetShard(learner, shard_folder(tmp_path / "three", worker), hot=32))
    other = ShardedFleet(learner, three, tmp_path / "three", 3)
    other.load(saved)
    np.testing.assert_array_equal(other.predict(np.arange(64), asked)["cov"], wanted.cov)
    with pytest.raises(ValueError, match="has learned already"):
        fleet.load(saved)
    with pytest.raises(ValueError, match="holds a fleet of 2 shards"):
        ShardedFleet(learner, here, tmp_path / "fleet", 3)
    with pytest.raises(ValueError, match="row 1"):
        fleet.learn([1, 2], np.array([[0.0, 0.0], [0.0, np.nan]]), np.zeros(2))


class Sum:
    """A worker whose state is a number; `fails` is how many more workers die as they start."""

    fails = 0
    saved: tuple[float, int] = (0.0, 0)

    def __init__(self) -> None:
        self.total, self.calls = Sum.saved

    def add(self, number: float) -> float:
        self.total, self.calls = self.total + number, self.calls + 1
        return self.total

    def save(self) -> int:
        Sum.saved = (self.total, self.calls)
        return self.calls

    def known(self) -> int:
        if Sum.fails:
            Sum.fails -= 1
            raise WorkerLost("as it started")
        return self.calls


def test_calls_since_the_last_save_are_sent_again_in_order() -> None:
    Sum.fails, Sum.saved = 0, (0.0, 0)
    here = Here(lambda worker: Sum())
    workers = Workers(here, 1, lambda worker, ask: ask("known"))
    early = [workers.send(0, "add", 1.0), workers.send(0, "add", 2.0)]
    workers.saved(0, workers.ask(0, "save"))
    late = workers.send(0, "add", 10.0)
    here.kill(0)
    Sum.fails = 2
    lost = workers.send(0, "add", 100.0)
    assert workers.wait(lost) == 113.0
    assert workers.wait(late) == 13.0
    assert [workers.wait(ticket) for ticket in early] == [1.0, 3.0]
    assert workers.restarts == 3
    Sum.fails = 1000
    here.kill(0)
    with pytest.raises(WorkerLost, match="20 times in a row"):
        workers.ask(0, "save")
