"""Rows in; the prediction made for each row, and the learner after it, out.

One row after another through the same machine code, whatever the blocks: a run cut anywhere and continued gives the
same numbers to the last bit.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.scaled import Scaled
from natkal.banks.selection import next_decision
from natkal.banks.units.scales import FIRST_ROWS
from natkal.compiling.policy import compile_loop, compile_quickly
from natkal.tables.engine.stages import BLOCK, Stages, Steps
from natkal.tables.learner.architectures import Inputs
from natkal.tables.learner.tasks import Outcome, Task
from natkal.typing import Array

TOGETHER = 64
"""How many rows are predicted at a time."""


class Row(NamedTuple):
    """Some rows: their numbers (NaN where missing), how many classes of each target are known, targets and weight."""

    numbers: Any
    known: Any
    targets: Any
    weight: Any


class Feed(NamedTuple):
    """What goes through the loop, one entry per row; None where it does not apply.

    `slots`: which model a row belongs to, where there are many. `resets`: a new sequence starts with the row. `late`:
    the row whose label has arrived by now and is learned instead of the row itself (weight 0 where none has), and
    `late_slots` whose model that is.
    """

    rows: Row
    slots: Any = None
    resets: Any = None
    late: Row | None = None
    late_slots: Any = None


class Told(NamedTuple):
    """What the loop tells of each row: the outcome of each target, and each member's weight with the memory."""

    outcomes: tuple[Outcome, ...]
    members: Any


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

    @functools.cached_property
    def _init(self):
        return compile_quickly(self.init)

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

    def run(self, state: Any, feed: Feed, progress: list[Progress]) -> tuple[Any, "Pending"]:
        """All rows in order: each predicted, then learned (or the row whose label comes late). Moves `progress` on."""
        return self._run(self._stages, state, feed, progress)

    def _run(
        self, programs: tuple[Stages, ...], state: Any, feed: Feed, progress: list[Progress]
    ) -> tuple[Any, "Pending"]:
        after, pieces = list(state), []
        for position, stages in enumerate(programs):
            steps, answers = self.steps(feed, position, progress[position])
            told = []
            for part, count in _blocks(steps, progress[position].steps, self.block):
                after[position], one = stages.run(after[position], part, np.int32(count))
                told.append((one, count))
            progress[position].steps += len(steps.target)
            pieces.append((told, answers))
        return tuple(after), Pending(pieces)

    def steps(self, feed: Feed, position: int, progress: Progress) -> tuple[Steps, np.ndarray]:
        """The steps of one target, and which of them answer the rows. Moves the first rows of `progress` on."""
        steps = _steps_of(feed.rows, position, feed.slots, feed.resets)
        answers = np.arange(len(steps.target))
        if feed.late is not None:
            late = _steps_of(feed.late, position, feed.late_slots, None)
            steps = jax.tree.map(_interleaved, steps._replace(resets=None), late)
            steps = steps._replace(asked=np.arange(len(steps.target)) % 2 == 0)
            answers = 2 * answers
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

    def predict(self, state: Any, feed: Feed, level: float | None) -> tuple[Any, Told]:
        """The prediction for each row, learning nothing; only a model's memory moves on.

        `level` is the coverage of the limits: one program serves all levels, and another one no limits (None). With a
        memory each level has its own.
        """
        if self.has_memory:
            unlabelled = feed.rows._replace(targets=np.full_like(feed.rows.targets, np.nan))
            copied = jax.tree.map(jnp.copy, state)  # the stages take their state over, and the caller may go back
            asked = feed._replace(rows=unlabelled)
            after, pending = self._run(self._stages_at(level), copied, asked, self.progress(state))
            told = pending.wait()
            return tuple(old._replace(bank=new.bank) for old, new in zip(state, after, strict=True)), told
        pieces = []
        for first in range(0, len(feed.rows.weight), BLOCK):
            part = jax.tree.map(lambda leaf, first=first: leaf[first : first + BLOCK], feed)
            count = len(part.rows.weight)
            told = self._predictions(state, jax.tree.map(_padded, part), count, level)
            pieces.append(jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n], told))
        return state, jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces)

    @functools.cached_property
    def _predictions(self):
        def block(state: Any, feed: Feed, count: Array, level: Any) -> Told:
            @jax.jit  # traced once, for its shapes and for the loop
            def one(now: Feed) -> Told:
                own = state if now.slots is None else jax.tree.map(lambda leaf: leaf[now.slots], state)
                return self._predict(own, now.rows, level)

            def some(turn: Array, told: Told) -> Told:
                first = turn * TOGETHER
                part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, TOGETHER), feed)
                return jax.tree.map(
                    lambda whole, new: jax.lax.dynamic_update_slice_in_dim(whole, new, first, 0),
                    told,
                    jax.vmap(one)(part),
                )

            shapes = jax.eval_shape(one, jax.tree.map(lambda leaf: leaf[0], feed))
            silent = jax.tree.map(lambda leaf: jnp.zeros((BLOCK, *leaf.shape), leaf.dtype), shapes)
            return jax.lax.fori_loop(0, -(-count // TOGETHER), some, silent)

        return jax.jit(block)

    @functools.cached_property
    def learn_then_predict(self):
        """(state, a row to learn, a row to predict) -> (state, told of the second): for one call per observation."""

        def both(state: Any, learned: Row, asked: Row) -> tuple[Any, Told]:
            after = self._learn(state, learned)
            return after, self._predict(after, asked, None)

        return compile_loop(both)

    @functools.cached_property
    def predict_row(self):
        """(state, a row to predict) -> told: one row by itself, without the padding of a block."""
        return compile_loop(lambda state, asked: self._predict(state, asked, None))

    def answers(self, state: Any, rows: Row, slots: Any, resets: Any, count: Array) -> Told:
        """The first `count` rows, each predicted as if it came next, with limits; plain JAX, nothing is learned."""

        def one(row: Array) -> Told:
            now, slot, reset = jax.tree.map(lambda leaf: leaf[row], (rows, slots, resets))
            own = state if slot is None else jax.tree.map(lambda leaf: leaf[slot], state)
            if reset is not None:
                restarted = tuple(learner.restart(part) for learner, part in zip(self.learners, own, strict=True))
                own = jax.tree.map(lambda new, old: jax.lax.select(reset, new, old), restarted, own)
            return self._predict(own, now, self.level)

        def body(row: Array, told: Told) -> Told:
            return jax.tree.map(lambda whole, value: whole.at[row].set(value), told, one(row))

        shapes = jax.eval_shape(one, jnp.zeros((), jnp.int32))
        silent = jax.tree.map(lambda leaf: jnp.zeros((len(rows.weight), *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, count, body, silent)

    @property
    def stages(self) -> tuple[Stages, ...]:
        """The programs of each target."""
        return self._stages

    def _learn(self, state: Any, row: Row) -> Any:
        after = []
        for position, (learner, task) in enumerate(zip(self.learners, self.tasks, strict=True)):
            target = jnp.stack([task.to_learner(row.targets[position]), row.weight])
            after.append(learner.step(state[position], self._inputs(row, position), target)[0])
        return tuple(after)

    def _predict(self, state: Any, row: Row, level: Any) -> Told:
        outcomes, members = [], []
        for position, (learner, task) in enumerate(zip(self.learners, self.tasks, strict=True)):
            prediction = learner.predict(state[position], self._inputs(row, position))
            weights = jnp.sum(prediction.weights, axis=1)
            outcomes.append(task.outcome(prediction, row.targets[position], level=level))
            members.append(jnp.append(weights, weights @ state[position].bank.memory))
        return Told(tuple(outcomes), jnp.concatenate(members))

    def _inputs(self, row: Row, position: int) -> Inputs:
        return Inputs(features=row.numbers[position], known=row.known[position])


@functools.lru_cache(maxsize=64)
def _stages(learner: Scaled, task: Task, level: float | None) -> Stages:
    """Targets that are alike share their programs."""
    return Stages(learner, task, level)


class Pending:
    """Results that may still be in the making: the host goes on reading while the device learns."""

    def __init__(self, pieces: list[tuple[list[Any], np.ndarray]]):
        self._pieces = pieces

    def wait(self) -> Told:
        """The results, once they are there, as NumPy arrays."""
        outcomes, members = [], []
        for told, answers in self._pieces:
            parts = [jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n], one) for one, count in told]
            whole = jax.tree.map(lambda *leaves: np.concatenate(leaves)[answers], *parts)  # noqa: B023
            outcomes.append(whole.outcome)
            members.append(whole.members)
        return Told(tuple(outcomes), np.concatenate(members, axis=1))


class Joined(Pending):
    """The results of rows that were run in several parts, one behind the other."""

    def __init__(self, parts: Sequence[Pending]):
        self._parts = parts

    def wait(self) -> Told:
        """The results, once they are there, as NumPy arrays."""
        told = [part.wait() for part in self._parts]
        return told[0] if len(told) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *told)


def _steps_of(rows: Row, position: int, slots: Any, resets: Any) -> Steps:
    return Steps(
        numbers=rows.numbers[position],
        known=rows.known[:, position],
        target=rows.targets[:, position],
        weight=rows.weight,
        slots=slots,
        resets=resets,
    )


def _interleaved(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """One entry of each in turn."""
    both = np.empty((2 * len(one), *one.shape[1:]), one.dtype)
    both[0::2], both[1::2] = one, other
    return both


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
