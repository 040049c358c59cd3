"""`nk.ray_fleet`: a learner for each id, spread over actors of Ray."""

import tempfile
from pathlib import Path
from typing import Any

from natkal.engine.protocol import Learner
from natkal.keyed.ray_workers import RayWorkers, connect
from natkal.keyed.sharded_fleet import CHECKPOINT_ROWS, FleetShard, ShardedFleet, shard_folder


def ray_fleet(
    learner: Learner,
    *,
    shards: int = 2,
    folder: str | Path | None = None,
    hot: int = 1 << 17,
    address: str | None = None,
    checkpoint_rows: int = CHECKPOINT_ROWS,
) -> ShardedFleet:
    """A learner like this one for each id, spread over `shards` actors of Ray by the hash of the id.

    `learn(ids, inputs, targets)` sends rows on and returns at once; its `.log_prob` waits for what they told.
    `predict(ids, inputs)`, `save(path)` and `load(path)` wait. Ids are integers or texts.

    Each actor keeps `hot` learners in memory and the others in `folder`, which all machines must see; a temporary one
    unless given. After every `checkpoint_rows` rows an actor saves there. An actor that dies is started again from
    what it saved, and gets the rows since then again: nothing is lost, and nothing counts twice. A fleet whose folder
    holds checkpoints goes on from them.

    `address` is that of a Ray cluster; unless given, the one that this process is connected to, else a new one here.
    """
    if shards < 1:
        raise ValueError(f"shards: must be at least 1, got {shards}")
    ray = connect(address, "nk.ray_fleet")
    where = Path(tempfile.mkdtemp(prefix="natkal-fleet-") if folder is None else folder).absolute()

    def make(worker: int) -> Any:
        return FleetShard(learner, shard_folder(where, worker), hot=hot)

    return ShardedFleet(learner, RayWorkers(ray, make), where, shards, checkpoint_rows)
