"""A table learner that is called with a few rows at a time, while others read its last whole state.

A small state travels as one vector of words for each target (`stream.live.Packing`), steps as one table of numbers:
each array of a call costs microseconds. The three stages of a target (`stages.py`) are then one program. A large state,
each row of which takes longer than any call, goes through the learner's own programs. Either way the state before a
call stays valid, so readers use it while the next one is computed.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.compiling.float64 import float64
from natkal.compiling.policy import LARGEST_STATE_BYTES, compile_loop
from natkal.stream.live import Packing
from natkal.tables.engine.batch import Pending, Predictions, TableBatch, one_after_the_other, side_by_side
from natkal.tables.engine.loop import Loop, spans
from natkal.tables.engine.slots import slots_of
from natkal.tables.engine.stages import Stages, Steps
from natkal.tables.learner.past import Past
from natkal.tables.table import TableLearner

FEW_ROWS, MANY_ROWS = 16, 1024
"""Steps of a block that is learned."""
ASKED_ROWS = 64
"""Rows of a block that is predicted."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Steps of one target as one table: numbers, known, target, weight, then replay, slot and reset where there are."""

    width: int
    replay: bool
    keyed: bool
    resets: bool

    def pack(self, steps: Steps, length: int) -> np.ndarray:
        """A table of this many rows, zero behind the given ones."""
        count, at = len(steps.target), self.width
        table = np.zeros((length, at + 3 + self.replay + self.keyed + self.resets))
        table[:count, :at] = steps.numbers
        columns = (steps.known, steps.target, steps.weight, steps.replay, steps.slots, steps.resets)
        there = (True, True, True, self.replay, self.keyed, self.resets)
        for column, wanted in zip(columns, there, strict=True):
            if wanted:
                if column is not None:
                    table[:count, at] = column
                at += 1
        return table

    def unpack(self, table: Any) -> Steps:
        """The steps again, inside a program."""
        rest = iter([table[:, at] for at in range(self.width, table.shape[1])])
        return Steps(
            numbers=table[:, : self.width],
            known=next(rest).astype(np.int32),
            target=next(rest),
            weight=next(rest),
            replay=next(rest).astype(np.int32) if self.replay else None,
            slots=next(rest).astype(np.int32) if self.keyed else None,
            resets=next(rest) > 0 if self.resets else None,
        )


class TargetPrograms:
    """The compiled calls that learn one target, on packed states."""

    def __init__(self, stages: Stages, packing: Packing, layout: Layout):
        self.layout = layout
        self.pack, self.unpack = jax.jit(packing.pack), jax.jit(packing.unpack)
        self._told: dict[int, Packing] = {}
        self._ready: dict[int, Callable[..., Any]] = {}

        def learn(held: Any, table: Any, count: Any) -> Any:
            state, told = stages.run(packing.unpack(*held), layout.unpack(table), count)
            self._told[len(table)] = own = Packing(told)
            return packing.pack(state), own.pack(told)

        self._learn = compile_loop(learn)

    def learn(self, held: Any, table: np.ndarray, count: int) -> Any:
        """The state after the first `count` steps, and what they told; compiled at the first call of each length."""
        program = self._ready.get(len(table))
        if program is None:
            program = self._ready[len(table)] = self._learn.program(held, table, count)
        return program(held, table, count)

    def read(self, told: Any, length: int, count: int) -> Any:
        """What steps told, as NumPy arrays; waits for it."""
        return self._told[length].read(*told, rows=count)


class Programs:
    """The compiled calls on packed states of one loop."""

    def __init__(self, learner: TableLearner):
        loop, state = learner.loop, learner.state
        packings = [Packing(own) for own in state]
        self.targets = [
            TargetPrograms(
                stages,
                packing,
                Layout(shape.columns, own.units.warms_up, learner.keyed, learner.options.has_memory),
            )
            for stages, packing, shape, own in zip(loop.stages, packings, loop.shapes, loop.learners, strict=True)
        ]

        def predict(held: Any, rows: tuple[Steps, ...], count: Any) -> Predictions:
            state = tuple(packing.unpack(*own) for packing, own in zip(packings, held, strict=True))
            return loop.answers(state, rows, count)

        self._predict = compile_loop(predict)
        self._ready: Callable[..., Any] | None = None

    def predict(self, *arguments: Any) -> Predictions:
        """Predictions of a block of ASKED_ROWS rows."""
        if self._ready is None:
            self._ready = self._predict.program(*arguments)
        return self._ready(*arguments)


def _programs_of(learner: TableLearner, slots: int) -> Programs:
    """Those of a loop, which is one object for the same question, and this number of slots, the last one there was."""
    kept: dict[int, Programs] = learner.loop.live
    if slots not in kept:
        made = Programs(learner)
        kept.clear()
        kept[slots] = made
    return kept[slots]


@dataclasses.dataclass(frozen=True)
class Reader:
    """The last whole state: predictions from it change nothing and wait for nobody."""

    loop: Loop
    programs: Programs | None
    held: Any
    keys: Mapping[str, int]
    free: int
    known: tuple[int, ...]
    past: Callable[[str], list[np.ndarray]]

    @float64
    def predict(self, numbers: np.ndarray, keys: Sequence[str] = (), resets: np.ndarray | None = None) -> Predictions:
        """Each row as if it came next; a key never seen gets what every model starts from."""
        count = len(numbers)
        pasts = [self.past(key) for key in keys] if keys else [self.past("")] * count
        batch = TableBatch(
            inputs=numbers,
            past=tuple(np.stack([past[at] for past in pasts]) for at in range(len(self.known))),
            known=np.repeat(np.array([self.known], np.int32), count, axis=0),
            targets=np.full((count, len(self.known)), np.nan),
            weight=np.ones(count),
            slot=np.array([min(self.keys.get(key, self.free), self.free) for key in keys], np.int32) if keys else None,
            reset=resets,
        )
        if self.programs is None:
            return self.loop.predict(self.held, batch, self.loop.level)[1]
        told = []
        for first in range(0, count, ASKED_ROWS):
            rows = self.loop.arranged(batch.part(slice(first, first + ASKED_ROWS)))
            length = min(count - first, ASKED_ROWS)
            told.append(self.programs.predict(self.held, jax.tree.map(_padded, rows), length).part(slice(length)))
        return one_after_the_other(told)


class LiveTable:
    """A table learner whose states stay valid. One thread calls `learn`; `reader` gives what others may use."""

    def __init__(self, learner: TableLearner):
        learner.with_limits()
        self.learner = learner
        self._slots = 0
        self._warm = False
        self.load()

    @float64
    def load(self) -> None:
        """Take the learner's state over, after it was restored or has grown."""
        learner = self.learner
        if learner.keyed:
            learner.make_room(len(learner.keys) + 1)
            self._slots = slots_of(learner.state)
        size = sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(learner.state))
        self._programs, self._held = None, learner.state
        if size <= LARGEST_STATE_BYTES:
            self._programs = _programs_of(learner, self._slots)
            pairs = zip(self._programs.targets, learner.state, strict=True)
            self._held = tuple(target.pack(own) for target, own in pairs)
            self._progress = learner.loop.progress(learner.state)
        if self._warm:
            self.warm_up()

    @float64
    def store(self) -> None:
        """Give the learner its state, for a checkpoint or before it grows."""
        state = self._held
        if self._programs is not None:
            pairs = zip(self._programs.targets, self._held, strict=True)
            state = tuple(target.unpack(*own) for target, own in pairs)
        slots = self.learner.slots if self.learner.keyed else None
        self.learner.state = jax.tree.map(lambda leaf: leaf[:slots], state) if slots else state

    @float64
    def warm_up(self) -> None:
        """Compile every program there is; also after the learner has grown."""
        self._warm = True
        width = len(self.learner.scaled)
        keys = [""] if self.learner.keyed else []
        resets = np.zeros(1, bool) if self.learner.options.has_memory else None
        self.reader().predict(np.full((1, width), np.nan), keys, resets)
        for target, held in zip(self._programs.targets if self._programs else (), self._held, strict=False):
            for length in {FEW_ROWS, MANY_ROWS}:
                columns = target.layout.pack(_no_steps(target.layout), length)
                jax.block_until_ready(target.learn(held, columns, 0))

    @float64
    def learn(self, batch: TableBatch, *, keys: Sequence[str] = (), resets: np.ndarray | None = None) -> Pending:
        """Predict each row, then learn it."""
        slots = self._slots_of(keys).astype(np.int32) if self.learner.keyed else None
        if self._programs is None:
            self.learner.state = jax.tree.map(jnp.copy, self._held)  # the stages take their state over
            pending = self.learner.learn(batch, keys=keys, resets=resets)
            self._held = self.learner.state
            return pending
        if resets is None and self.learner.options.has_memory:
            resets = np.zeros(len(batch.weight), bool)
        batch, after, pieces = batch._replace(slot=slots, reset=resets), list(self._held), []
        for position, target in enumerate(self._programs.targets):
            progress = self._progress[position]
            steps, answers = self.learner.loop.steps(batch, position, progress)
            told, total = [], len(steps.target)
            for first, last in spans(total, progress.steps, MANY_ROWS):
                part = steps
                if last - first < total:
                    part = jax.tree.map(lambda leaf, first=first, last=last: leaf[first:last], steps)
                length = FEW_ROWS if last - first <= FEW_ROWS else MANY_ROWS
                table = target.layout.pack(part, length)
                after[position], one = target.learn(after[position], table, last - first)
                told.append((one, length, last - first))
            progress.steps += total
            pieces.append((target, told, answers))
        self._held = tuple(after)

        def finish() -> Predictions:
            parts = []
            for target, told, answers in pieces:
                whole = one_after_the_other([target.read(*one) for one in told])
                parts.append(whole if len(answers) == len(whole.weights) else whole.part(answers))
            return side_by_side(parts)

        return Pending(finish)

    def add_classes(self, position: int, count: int) -> None:
        """Room for at least so many classes of a target."""
        self.store()
        self.learner.add_classes(position, count)
        self.load()

    def reader(self) -> Reader:
        """The state after the last block, for predictions."""
        learner = self.learner
        if learner.keyed:
            past = lambda key: [_past_inputs(own, key) for own in learner.pasts]  # noqa: E731
        else:
            now = [_past_inputs(own, "") for own in learner.pasts]
            past = lambda key: now  # noqa: E731
        return Reader(
            loop=learner.loop,
            programs=self._programs,
            held=self._held,
            keys=learner.keys,
            free=len(learner.keys),
            known=tuple(learner.known),
            past=past,
        )

    def _slots_of(self, keys: Sequence[str]) -> np.ndarray:
        """The slot of each key, with one to spare for keys that are only asked about."""
        needed = len(self.learner.keys.keys() | set(keys)) + 1
        if needed > self._slots:
            self.store()
            self.learner.make_room(needed)
            self.load()
        return np.array([self.learner.slot(key) for key in keys])


def _past_inputs(past: Past, key: str) -> np.ndarray:
    return past.inputs(key) if past.columns else np.zeros(0)


def _no_steps(layout: Layout) -> Steps:
    none = np.zeros(0)
    return Steps(np.zeros((0, layout.width)), none, none, none, none, None, none, none)


def _padded(rows: np.ndarray) -> np.ndarray:
    full = np.zeros((ASKED_ROWS, *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full
