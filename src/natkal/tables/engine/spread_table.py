"""The models of a table's keys, spread over workers: each key's rows go to the worker that its hash names.

The `TableLearner` stays where it is, with everything but the learning: encoding, past targets, classes, checkpoints.
Its state is brought together when anybody looks at it. What it was then is what a lost worker starts from again.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.compiling.float64 import float64
from natkal.keyed.key_index import words_of
from natkal.keyed.keyed_fleet import shard_of
from natkal.keyed.workers import Executor, Ticket, Workers
from natkal.settings.options import Options
from natkal.storage.states import restored, state_arrays
from natkal.tables.engine.batch import Pending, Predictions, TableBatch
from natkal.tables.table import TableLearner

MOST_ROWS_KEPT = 1 << 18
"""Rows that are kept to be sent again; then the states are brought together."""


class TableShard:
    """One worker: the states of its keys, numbered from 0."""

    @float64
    def load(
        self, options: Options, header: Mapping[str, Any], limits: bool, states: Mapping[str, Any], start: Any
    ) -> None:
        """The states of its keys, and the one that further keys start from."""
        self._loop = TableLearner.from_header(options, header, keyed=True, limits=limits).loop
        shapes = jax.eval_shape(self._loop.init)
        self._start, self._state = restored(shapes, start), restored(shapes, states)

    @float64
    def run(self, batch: TableBatch) -> Predictions:
        """Predict each row, then learn it."""
        assert batch.slot is not None
        self._grow(int(batch.slot.max(initial=0)) + 1)
        self._state, pending = self._loop.run(self._state, batch, self._loop.progress(self._state))
        return pending.wait()

    @float64
    def states(self) -> dict[str, np.ndarray]:
        """All of them."""
        return state_arrays(self._state)

    def _grow(self, needed: int) -> None:
        have = size = jax.tree.leaves(self._state)[0].shape[0]
        while size < needed:
            size *= 2
        if size > have:
            more = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], size - have, axis=0), self._start)
            self._state = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), self._state, more)


class SpreadTable:
    """Where the models of a table's keys learn; set it as `TableLearner.elsewhere`."""

    def __init__(self, learner: TableLearner, executor: Executor, count: int):
        self._learner, self._count = learner, count
        self._kept = [0] * count
        self._rows = 0
        self._stale = True
        """Whether the workers do not know the state that the learner has."""
        self._ahead = False
        """Whether the workers have learned rows that the learner's state does not know."""
        self._worker, self._local = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.workers = Workers(executor, count, self._resumed)

    def run(self, batch: TableBatch) -> Pending:
        """Send each row to the worker of its key; what they tell, once it is asked for."""
        if self._rows >= MOST_ROWS_KEPT:
            self.collect()
        self._number_keys()
        if self._stale:
            for worker in range(self._count):
                self.workers.ask(worker, "load", *self._loaded(worker))
                self._kept[worker] = self.workers.sent(worker)
                self.workers.saved(worker, self._kept[worker])
            self._stale = False
        parts = []
        assert batch.slot is not None
        slots = batch.slot
        for worker in range(self._count):
            rows = np.flatnonzero(self._worker[slots] == worker)
            if len(rows):
                own = batch.part(rows)._replace(slot=self._local[slots[rows]].astype(np.int32))
                parts.append((self.workers.send(worker, "run", own), rows))
        self._ahead = True
        self._rows += len(slots)
        return Pending(lambda: _in_order(self.workers, len(slots), parts))

    @float64
    def collect(self) -> None:
        """Bring the states together in the learner."""
        if not self._ahead:
            return
        self._ahead, self._rows = False, 0
        state = jax.tree.map(np.array, state_arrays(self._learner.held))
        for worker in range(self._count):
            own, numbers = self._keys_of(worker), self.workers.sent(worker)
            found = self.workers.ask(worker, "states")
            for name, array in found.items():
                state[name][own] = array[self._local[own]]
            self._kept[worker] = numbers
        self._learner.held = restored(jax.eval_shape(self._learner.loop.init), state)
        for worker in range(self._count):
            self.workers.saved(worker, self._kept[worker])

    def replaced(self) -> None:
        """The learner has another state now, which the workers must know before they go on."""
        self._stale, self._ahead = True, False

    def close(self) -> None:
        """Bring the states together, and end the workers."""
        self.collect()
        self.workers.close()

    def _resumed(self, worker: int, ask: Any) -> int:
        """A worker that was started again takes the states as they were last brought together."""
        if not self._stale:
            ask("load", *self._loaded(worker))
        return self._kept[worker]

    @float64
    def _loaded(self, worker: int) -> tuple[Any, ...]:
        learner = self._learner
        own = self._keys_of(worker)
        size = max(len(own), 1)
        slots = np.concatenate([own, np.full(size - len(own), -1)]).astype(int)
        states = {name: array[slots] for name, array in state_arrays(learner.held).items()}
        start = {name: array[-1] for name, array in state_arrays(learner.new_model()).items()}
        return learner.options, {**learner.header(), "keys": []}, learner.limits, states, start

    def _keys_of(self, worker: int) -> np.ndarray:
        """The slots of a worker's keys, in the order of its own numbers."""
        return np.flatnonzero(self._worker == worker)

    def _number_keys(self) -> None:
        names = list(self._learner.keys)[len(self._worker) :]
        if not names:
            return
        workers = shard_of(words_of(names), self._count)
        before = np.bincount(self._worker, minlength=self._count)
        local = np.empty(len(names), np.int64)
        for worker in range(self._count):
            own = np.flatnonzero(workers == worker)
            local[own] = before[worker] + np.arange(len(own))
        self._worker = np.concatenate([self._worker, workers])
        self._local = np.concatenate([self._local, local])


def _in_order(workers: Workers, count: int, parts: list[tuple[Ticket, np.ndarray]]) -> Predictions:
    """What rows on several workers told, in the order of the rows."""
    told = [(rows, workers.wait(ticket)) for ticket, rows in parts]

    def joined(*leaves: Any) -> np.ndarray:
        whole = np.zeros((count, *leaves[0].shape[1:]), leaves[0].dtype)
        for (rows, _), leaf in zip(told, leaves, strict=True):
            whole[rows] = leaf
        return whole

    return jax.tree.map(joined, *(one for _, one in told))
