"""A learner for each id, spread over workers by the hash of the id; see this folder's README."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from natkal.engine.protocol import Learner
from natkal.keyed.key_index import words_of
from natkal.keyed.keyed_fleet import MANIFEST, KeyedFleet, checked_rows, shard_of
from natkal.keyed.workers import Executor, Ticket, Workers
from natkal.storage.file import StorageError
from natkal.stream.checks import check_rows

LIST = "shards.json"
CHECKPOINT_ROWS = 1 << 20
"""Rows that a shard gets between checkpoints, unless another number is given."""


class FleetShard:
    """One worker: a keyed fleet in a folder of its own, which goes on from what was last saved there."""

    def __init__(self, learner: Learner, folder: str | Path, *, hot: int):
        self.fleet = KeyedFleet(learner, folder, hot=hot)
        if (Path(folder) / MANIFEST).exists():
            self.fleet.load()

    def learn(self, words: np.ndarray, inputs: Any, targets: np.ndarray) -> np.ndarray:
        """One block; the log probability of each row."""
        return self.fleet.learn_unchecked(words, inputs, targets)

    def predict(self, words: np.ndarray, inputs: Any) -> dict[str, np.ndarray]:
        """Mean and covariance of each row's law."""
        prediction = self.fleet.predict_unchecked(words, inputs)
        return {"mean": np.asarray(prediction.mean), "cov": np.asarray(prediction.cov)}

    def save(self) -> int:
        """Save; how many blocks are in it."""
        self.fleet.save()
        return self.fleet.blocks

    def blocks(self) -> int:
        """How many blocks were learned."""
        return self.fleet.blocks

    def count(self) -> int:
        """How many ids have learned."""
        return len(self.fleet)

    def adopt(self, folders: list[str], shard: int, shards: int) -> int:
        """Take over the ids of saved fleets that belong here, and save them; how many."""
        for folder in folders:
            self.fleet.adopt(Path(folder), shard, shards)
        self.fleet.save()
        return len(self.fleet)


class Learned:
    """What the rows of one call told, once it is asked for."""

    def __init__(self, fleet: "ShardedFleet", rows: int, parts: list[tuple[Ticket, np.ndarray]]):
        self._fleet, self._rows, self._parts = fleet, rows, parts
        self._found: np.ndarray | None = None

    @property
    def log_prob(self) -> np.ndarray:
        """The log probability of each row before it was learned; waits for it."""
        if self._found is None:
            values = [(rows, self._fleet.workers.wait(ticket)) for ticket, rows in self._parts]
            self._found = np.zeros(self._rows, values[0][1].dtype if values else float)
            for rows, value in values:
                self._found[rows] = value
            self._parts = []
        return self._found

    def __del__(self) -> None:
        for ticket, _ in self._parts:
            self._fleet.workers.forget(ticket)


class ShardedFleet:
    """A fleet whose learners are spread over workers; `nk.ray_fleet` builds one on Ray.

    `learn` does not wait: it sends the rows and returns at once, unless too many are under way.
    """

    def __init__(
        self, learner: Learner, executor: Executor, folder: Path, shards: int, checkpoint_rows: int = CHECKPOINT_ROWS
    ):
        self.learner, self.folder, self.shards = learner, folder, shards
        self._checkpoint_rows = checkpoint_rows
        self._rows = [0] * shards
        _write_list(folder, shards)
        # a worker reads its own folder, and knows how many blocks are in it
        self.workers = Workers(executor, shards, lambda worker, ask: ask("blocks"))

    def learn(self, ids: Any, inputs: Any, targets: Any) -> Learned:
        """Row i is learned by the learner of `ids[i]`, the rows of one id in their order."""
        words, inputs, targets = checked_rows(self.learner, ids, inputs, targets)
        shards = shard_of(words, self.shards)
        parts = []
        for shard in range(self.shards):
            rows = np.flatnonzero(shards == shard)
            if not len(rows):
                continue
            own = jax.tree.map(lambda leaf, rows=rows: leaf[rows], inputs)
            parts.append((self.workers.send(shard, "learn", words[rows], own, targets[rows]), rows))
            self._rows[shard] += len(rows)
            if self._rows[shard] >= self._checkpoint_rows:
                self._save(shard)
        return Learned(self, len(targets), parts)

    def predict(self, ids: Any, inputs: Any) -> dict[str, np.ndarray]:
        """`mean` (n, k) and `cov` (n, k, k) of T(y) for each row, by the learner of its id."""
        check_rows(inputs)
        words, inputs = words_of(ids), jax.tree.map(np.asarray, inputs)
        shards = shard_of(words, self.shards)
        found: dict[str, np.ndarray] = {}
        for shard in range(self.shards):
            rows = np.flatnonzero(shards == shard)
            if not len(rows):
                continue
            own = jax.tree.map(lambda leaf, rows=rows: leaf[rows], inputs)
            for name, values in self.workers.ask(shard, "predict", words[rows], own).items():
                whole = found.setdefault(name, np.zeros((len(words), *values.shape[1:]), values.dtype))
                whole[rows] = values
        return found

    def __len__(self) -> int:
        """How many ids have learned."""
        return sum(self.workers.ask(shard, "count") for shard in range(self.shards))

    def save(self, path: str | Path | None = None) -> Path:
        """A checkpoint of every shard in the fleet's folder; with `path`, a copy of it there."""
        for shard in range(self.shards):
            self._save(shard)
        if path is None:
            return self.folder
        target = Path(path)
        if target.exists() and any(target.iterdir()):
            raise ValueError(f"{target}: is not empty; name a new folder")
        for shard in range(self.shards):
            shutil.copytree(shard_folder(self.folder, shard), shard_folder(target, shard), copy_function=_link)
        _write_list(target, self.shards)
        return target

    def load(self, path: str | Path) -> None:
        """What another fleet of the same learner saved, on any number of shards; for one that has learned nothing."""
        source = Path(path)
        if any(self.workers.sent(shard) for shard in range(self.shards)) or len(self):
            raise ValueError("load: this fleet has learned already; load into a new one")
        folders = [str(shard_folder(source, shard)) for shard in range(_read_list(source))]
        for shard in range(self.shards):
            self.workers.ask(shard, "adopt", folders, shard, self.shards)

    def close(self) -> None:
        """End the workers; what was saved stays."""
        self.workers.close()

    def _save(self, shard: int) -> None:
        self.workers.saved(shard, self.workers.ask(shard, "save"))
        self._rows[shard] = 0


def shard_folder(folder: Path, shard: int) -> Path:
    """The folder of one shard."""
    return folder / f"shard-{shard:03d}"


def _write_list(folder: Path, shards: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LIST
    if path.exists() and _read_list(folder) != shards:
        raise ValueError(f"{folder}: holds a fleet of {_read_list(folder)} shards, not {shards}; use another folder")
    path.write_text(json.dumps({"shards": shards}))


def _read_list(folder: Path) -> int:
    try:
        shards = json.loads((folder / LIST).read_text())["shards"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{folder}: holds no saved fleet: {error}") from error
    if not isinstance(shards, int) or not 0 < shards < 10_000:
        raise StorageError(f"{folder / LIST}: {shards!r} is no number of shards")
    return shards


def _link(source: str, target: str) -> None:
    """Segments are never changed, so a second name for one is a copy; a manifest is copied."""
    if source.endswith(".npy"):
        try:
            os.link(source, target)
            return
        except OSError:
            pass
    shutil.copy2(source, target)
