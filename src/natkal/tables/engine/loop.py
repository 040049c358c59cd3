"""Rows in; the prediction made for each row, and the learner after it, out.

One row after another through the same machine code, whatever the blocks: a run cut anywhere and continued gives the
same numbers to the last bit.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.scaled import Scaled
from natkal.banks.selection import next_decision
from natkal.banks.units.scales import FIRST_ROWS
from natkal.compiling.policy import compile_loop, compile_quickly, compile_whole
from natkal.tables.engine.batch import Pending, Predictions, TableBatch, one_after_the_other, side_by_side
from natkal.tables.engine.stages import BLOCK, Stages, Steps
from natkal.tables.learner.architectures import Inputs, Shape
from natkal.tables.learner.tasks import Task
from natkal.typing import Array

TOGETHER = 64
"""How many rows are predicted at a time."""


@dataclasses.dataclass
class Progress:
    """How far one target has come, known to the host: steps taken, and first rows seen by each model."""

    steps: int
    first_rows: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Loop:
    """Test, then train. `limits`: whether the limits of intervals, which hold `level` of the targets, are computed too
    while learning.
    """

    learners: tuple[Scaled, ...]
    tasks: tuple[Task, ...]
    shapes: tuple[Shape, ...]
    limits: bool
    level: float
    has_memory: bool
    block: int = BLOCK
    """Steps of a block while learning; shorter ones are padded, so rows that come one by one need a short one."""

    def init(self) -> tuple[Any, ...]:
        """Nothing seen: a state for each target."""
        return tuple(learner.init() for learner in self.learners)

    def start(self) -> tuple[Any, ...]:
        """`init`, compiled once for this loop."""
        return self._init()

    def state_shapes(self) -> tuple[Any, ...]:
        """A state without its numbers."""
        return self._init.shapes()

    @functools.cached_property
    def _init(self):
        return compile_quickly(self.init, name=self._name("init"))

    def _name(self, program: str) -> Any:
        """What a program of this loop is kept under."""
        names = tuple(learner.name for learner in self.learners)
        return None if None in names else (names, self.tasks, self.level, program)

    @functools.cached_property
    def _stages(self) -> tuple[Stages, ...]:
        return self._stages_at(self.level if self.limits else None)

    def _stages_at(self, level: float | None) -> tuple[Stages, ...]:
        """The programs of each target, with limits of this coverage, or without."""
        return tuple(_stages(learner, task, level) for learner, task in zip(self.learners, self.tasks, strict=True))

    @functools.cached_property
    def live(self) -> dict[int, Any]:
        """The programs of a server, by the number of its slots (live_table.py)."""
        return {}

    def progress(self, state: Any) -> list[Progress]:
        """Where each target stands; waits for what is under way."""
        return [
            Progress(
                steps=0 if own.bank.selection is None else int(own.bank.selection.seen),
                first_rows=np.array(own.rows),
            )
            for own in state
        ]

    def run(self, state: Any, batch: TableBatch, progress: list[Progress]) -> tuple[Any, Pending]:
        """All rows in order: each predicted, then learned. Moves `progress` on."""
        return self._run(self._stages, state, batch, progress)

    def _run(
        self, programs: tuple[Stages, ...], state: Any, batch: TableBatch, progress: list[Progress]
    ) -> tuple[Any, Pending]:
        after, pieces = list(state), []
        for position, stages in enumerate(programs):
            steps, answers = self.steps(batch, position, progress[position])
            told = []
            for part, count in _blocks(steps, progress[position].steps, self.block):
                after[position], one = stages.run(after[position], part, np.int32(count))
                told.append((one, count))
            progress[position].steps += len(steps.target)
            pieces.append((told, answers))

        def finish() -> Predictions:
            whole = [one_after_the_other([one.part(slice(count)) for one, count in told]) for told, _ in pieces]
            own = [part.part(answers) for part, (_, answers) in zip(whole, pieces, strict=True)]
            return side_by_side(own)

        return tuple(after), Pending(finish)

    def arranged(self, batch: TableBatch) -> tuple[Steps, ...]:
        """The rows as the steps of each target: the past and the other inputs in their places, room for more behind."""
        return tuple(
            Steps(
                numbers=_placed(shape, past, batch.inputs),
                known=batch.known[:, position],
                target=batch.targets[:, position],
                weight=batch.weight,
                asked=batch.ask,
                slots=batch.slot,
                resets=batch.reset,
            )
            for position, (shape, past) in enumerate(zip(self.shapes, batch.past, strict=True))
        )

    def steps(self, batch: TableBatch, position: int, progress: Progress) -> tuple[Steps, np.ndarray]:
        """The steps of one target, and which of them answer the rows. Moves the first rows of `progress` on."""
        steps = self.arranged(batch)[position]
        answers = np.arange(len(steps.target)) if batch.late is None else np.flatnonzero(~batch.late)
        if not self.learners[position].units.warms_up:
            return steps, answers
        counted = ~np.isnan(steps.target)
        if steps.asked is not None:
            counted &= ~steps.asked
        places = _replays(counted, steps.slots, progress.first_rows)
        if not places:
            return steps._replace(replay=np.full(len(steps.target), -1, np.int32)), answers
        order, replay, before = [], [], 0
        for place in places:
            order += [np.arange(before, place + 1), np.full(FIRST_ROWS, place)]
            replay += [np.full(place + 1 - before, -1), np.arange(FIRST_ROWS)]
            before = place + 1
        order = np.concatenate([*order, np.arange(before, len(counted))])
        replay = np.concatenate([*replay, np.full(len(order) - sum(map(len, replay)), -1)]).astype(np.int32)
        own = np.flatnonzero(replay < 0)
        steps = jax.tree.map(lambda leaf: leaf[order], steps)
        if steps.asked is not None:
            steps = steps._replace(asked=steps.asked & (replay < 0))
        if steps.resets is not None:
            steps = steps._replace(resets=steps.resets & (replay < 0))
        return steps._replace(replay=replay), own[answers]

    def predict(self, state: Any, batch: TableBatch, level: float | None) -> tuple[Any, Predictions]:
        """The prediction for each row, learning nothing; only a model's memory moves on.

        `level` is the coverage of the limits: one program serves all levels, and another one no limits (None). With a
        memory each level has its own.
        """
        if self.has_memory:
            copied = jax.tree.map(jnp.copy, state)  # the stages take their state over, and the caller may go back
            after, pending = self._run(self._stages_at(level), copied, batch.unlabelled(), self.progress(state))
            told = pending.wait()
            return tuple(old._replace(bank=new.bank) for old, new in zip(state, after, strict=True)), told
        pieces = []
        for first in range(0, len(batch.weight), BLOCK):
            part = self.arranged(batch.part(slice(first, first + BLOCK)))
            count = len(part[0].weight)
            told = self._predictions(state, jax.tree.map(_padded, part), count, level)
            pieces.append(told.part(slice(count)))
        return state, one_after_the_other(pieces)

    @functools.cached_property
    def _predictions(self):
        def block(state: Any, rows: tuple[Steps, ...], count: Array, level: Any) -> Predictions:
            @jax.jit  # traced once, for its shapes and for the loop
            def one(now: tuple[Steps, ...]) -> Predictions:
                slot = now[0].slots
                own = state if slot is None else jax.tree.map(lambda leaf: leaf[slot], state)
                return self._predict(own, now, level)

            def some(turn: Array, told: Predictions) -> Predictions:
                first = turn * TOGETHER
                part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, TOGETHER), rows)
                return jax.tree.map(
                    lambda whole, new: jax.lax.dynamic_update_slice_in_dim(whole, new, first, 0),
                    told,
                    jax.vmap(one)(part),
                )

            shapes = jax.eval_shape(one, jax.tree.map(lambda leaf: leaf[0], rows))
            silent = jax.tree.map(lambda leaf: jnp.zeros((BLOCK, *leaf.shape), leaf.dtype), shapes)
            return jax.lax.fori_loop(0, -(-count // TOGETHER), some, silent)

        return compile_whole(block, name=self._name("predictions"))

    @functools.cached_property
    def learn_then_predict(self):
        """(state, a row to learn, a row to predict) -> (state, what is predicted): for one call per observation."""

        def both(state: Any, learned: tuple[Steps, ...], asked: tuple[Steps, ...]) -> tuple[Any, Predictions]:
            after = self._learn(state, learned)
            return after, self._predict(after, asked, None)

        return compile_loop(both, name=self._name("learn then predict"))

    @functools.cached_property
    def predict_row(self):
        """(state, a row to predict) -> what is predicted: one row by itself, without the padding of a block."""
        return compile_loop(lambda state, asked: self._predict(state, asked, None), name=self._name("predict row"))

    def answers(self, state: Any, rows: tuple[Steps, ...], count: Array) -> Predictions:
        """The first `count` rows, each predicted as if it came next, with limits; plain JAX, nothing is learned."""

        def one(row: Array) -> Predictions:
            now = jax.tree.map(lambda leaf: leaf[row], rows)
            slot, reset = now[0].slots, now[0].resets
            own = state if slot is None else jax.tree.map(lambda leaf: leaf[slot], state)
            if reset is not None:
                restarted = tuple(learner.restart(part) for learner, part in zip(self.learners, own, strict=True))
                own = jax.tree.map(lambda new, old: jax.lax.select(reset, new, old), restarted, own)
            return self._predict(own, now, self.level)

        def body(row: Array, told: Predictions) -> Predictions:
            return jax.tree.map(lambda whole, value: whole.at[row].set(value), told, one(row))

        shapes = jax.eval_shape(one, jnp.zeros((), jnp.int32))
        silent = jax.tree.map(lambda leaf: jnp.zeros((len(rows[0].weight), *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, count, body, silent)

    @property
    def stages(self) -> tuple[Stages, ...]:
        """The programs of each target."""
        return self._stages

    def _learn(self, state: Any, rows: tuple[Steps, ...]) -> Any:
        after = []
        for learner, task, own, row in zip(self.learners, self.tasks, state, rows, strict=True):
            target = jnp.stack([task.to_learner(row.target), row.weight])
            after.append(learner.step(own, Inputs(row.numbers, row.known), target)[0])
        return tuple(after)

    def _predict(self, state: Any, rows: tuple[Steps, ...], level: Any) -> Predictions:
        parts = []
        for learner, task, own, row in zip(self.learners, self.tasks, state, rows, strict=True):
            prediction = learner.predict(own, Inputs(row.numbers, row.known))
            weights = jnp.sum(prediction.weights, axis=1)
            outcome = task.outcome(prediction, row.target, row.known, level=level)
            parts.append(Predictions((outcome,), weights, weights @ own.bank.memory))
        return side_by_side(parts)


@functools.lru_cache(maxsize=64)
def _stages(learner: Scaled, task: Task, level: float | None) -> Stages:
    """Targets that are alike share their programs."""
    return Stages(learner, task, level)


def _placed(shape: Shape, past: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """The inputs of each row in their places, missing where there is room for more."""
    numbers = np.full((len(inputs), shape.columns), np.nan)
    if shape.later_past:
        numbers[:, np.flatnonzero(shape.is_past)[: past.shape[1]]] = past
        numbers[:, np.flatnonzero(~shape.is_past)[: inputs.shape[1]]] = inputs
        return numbers
    numbers[:, : shape.past] = past
    numbers[:, shape.past : shape.past + inputs.shape[1]] = inputs
    return numbers


def _replays(counted: np.ndarray, slots: np.ndarray | None, first_rows: np.ndarray) -> list[int]:
    """The steps after which a model has seen its first rows; moves `first_rows`, a count for each model, on."""
    if slots is None:
        missing = FIRST_ROWS - int(first_rows)
        found = np.flatnonzero(counted)
        first_rows[...] = min(int(first_rows) + len(found), FIRST_ROWS)
        return [int(found[missing - 1])] if 0 < missing <= len(found) else []
    places = []
    for step in np.flatnonzero(counted & (first_rows[slots] < FIRST_ROWS)):
        own = slots[step]
        if first_rows[own] < FIRST_ROWS:
            first_rows[own] += 1
            if first_rows[own] == FIRST_ROWS:
                places.append(int(step))
    return places


def _blocks(steps: Steps, taken: int, length: int) -> Iterator[tuple[Steps, int]]:
    """Blocks of steps, none reaching over a decision of the selection, padded; and how many steps count."""
    for first, last in spans(len(steps.target), taken, length):
        part = jax.tree.map(lambda leaf, first=first, last=last: leaf[first:last], steps)
        yield jax.tree.map(lambda leaf: _padded(leaf, length), part), last - first


def spans(total: int, taken: int, longest: int) -> Iterator[tuple[int, int]]:
    """Where blocks of `total` more steps begin and end: none reaches over a decision of the selection."""
    first = 0
    while first < total:
        last = min(total, next_decision(taken + first) - taken, first + longest)
        yield first, last
        first = last


def _padded(rows: np.ndarray, length: int = BLOCK) -> np.ndarray:
    if len(rows) == length:
        return rows
    full = np.zeros((length, *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full
