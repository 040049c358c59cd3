"""The compiled loop: rows in; the prediction made for each row, and the learner after it, out.

One row after another through the same machine code, whatever the blocks: a run cut anywhere and continued gives the
same numbers to the last bit.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.compiling import compile_loop
from natkal.learners.scaled import Scaled
from natkal.tabular.choose import Inputs
from natkal.tabular.tasks import LEVEL, Outcome, Task
from natkal.typing import Array

BLOCKS = (256, 4096)
"""Rows are padded to one of these lengths, so that few programs are compiled; longer ones are cut at the last."""
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


@dataclasses.dataclass(frozen=True, eq=False)
class Loop:
    """Test, then train. `limits`: whether the limits of intervals are computed too while learning."""

    learners: tuple[Scaled, ...]
    tasks: tuple[Task, ...]
    limits: bool
    has_memory: bool

    def init(self) -> tuple[Any, ...]:
        """Nothing seen: a state for each target."""
        return tuple(learner.init() for learner in self.learners)

    def run(self, state: Any, feed: Feed) -> tuple[Any, "Pending"]:
        """All rows in order: each predicted, then learned."""
        pieces = []
        for part, count in _parts(feed):
            state, told = self._block(state, part, count)
            pieces.append((told, count))
        return state, Pending(pieces)

    def predict(self, state: Any, feed: Feed, level: float | None) -> tuple[Any, Told]:
        """The prediction for each row, learning nothing; only a model's memory moves on.

        `level` is the coverage of the limits: one program serves all levels, and another one no limits (None).
        """
        pieces = []
        for part, count in _parts(feed):
            if self.has_memory:
                state, told = self._passed(state, part, count, level)
            else:
                told = self._predictions(state, part, count, level)
            pieces.append((told, count))
        return state, Pending(pieces).wait()

    @functools.cached_property
    def _block(self):
        return compile_loop(self.block, donate_argnums=(0,))

    def block(self, state: Any, feed: Feed, count: Array) -> tuple[Any, Told]:
        """The first `count` rows of the feed, each predicted and then learned; plain JAX."""

        def body(row: Array, carried: tuple[Any, Told]) -> tuple[Any, Told]:
            state, told = carried
            now: Feed = jax.tree.map(lambda leaf: leaf[row], feed)
            new, one = self._row(_at(state, now.slots), now)
            known = _put(state, now.slots, new)
            if now.late is not None:
                late = self._learn(_at(known, now.late_slots), now.late, None)[0]
                known = _put(known, now.late_slots, late)
            return known, jax.tree.map(lambda whole, value: whole.at[row].set(value), told, one)

        return jax.lax.fori_loop(0, count, body, (state, self._silent(state, feed)))

    def answers(self, state: Any, feed: Feed, count: Array) -> Told:
        """The first `count` rows of the feed, each predicted as the next one, with limits; plain JAX."""

        def body(row: Array, told: Told) -> Told:
            now: Feed = jax.tree.map(lambda leaf: leaf[row], feed)
            one = self._predict(self._restarted(_at(state, now.slots), now.resets), now.rows, LEVEL)
            return jax.tree.map(lambda whole, value: whole.at[row].set(value), told, one)

        return jax.lax.fori_loop(0, count, body, self._silent(state, feed))

    @functools.cached_property
    def _passed(self):
        """Rows without a target through a model with memory: they are predicted, and only the memory moves."""

        def block(state: Any, feed: Feed, count: Array, level: Any) -> tuple[Any, Told]:
            def body(row: Array, carried: tuple[Any, Told]) -> tuple[Any, Told]:
                state, told = carried
                now: Feed = jax.tree.map(lambda leaf: leaf[row], feed)
                before = self._restarted(_at(state, now.slots), now.resets)
                unlabelled = now.rows._replace(targets=jnp.full_like(now.rows.targets, jnp.nan))
                after, one = self._learn(before, unlabelled, level)
                moved = tuple(old._replace(bank=new.bank) for old, new in zip(before, after, strict=True))
                known = _put(state, now.slots, moved)
                return known, jax.tree.map(lambda whole, value: whole.at[row].set(value), told, one)

            return jax.lax.fori_loop(0, count, body, (state, self._silent(state, feed)))

        return compile_loop(block)

    @functools.cached_property
    def _predictions(self):
        def block(state: Any, feed: Feed, count: Array, level: Any) -> Told:
            def one(now: Feed) -> Told:
                return self._predict(_at(state, now.slots), now.rows, level)

            def some(turn: Array, told: Told) -> Told:
                first = turn * TOGETHER
                part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, TOGETHER), feed)
                return jax.tree.map(
                    lambda whole, new: jax.lax.dynamic_update_slice_in_dim(whole, new, first, 0),
                    told,
                    jax.vmap(one)(part),
                )

            return jax.lax.fori_loop(0, -(-count // TOGETHER), some, self._silent(state, feed))

        return jax.jit(block)

    @functools.cached_property
    def learn_then_predict(self):
        """(state, a row to learn, a row to predict) -> (state, told of the second): for one call per observation."""

        def both(state: Any, learned: Row, asked: Row) -> tuple[Any, Told]:
            after = self._learn(state, learned, None)[0]
            return after, self._predict(after, asked, None)

        return compile_loop(both)

    @functools.cached_property
    def predict_row(self):
        """(state, a row to predict) -> told: one row by itself, without the padding of a block."""
        return compile_loop(lambda state, asked: self._predict(state, asked, None))

    def _row(self, state: Any, now: Feed) -> tuple[Any, Told]:
        """Predict this row, and learn it unless its label comes later."""
        if now.late is not None:
            return state, self._predict(state, now.rows, self._level)
        return self._learn(self._restarted(state, now.resets), now.rows, self._level)

    @property
    def _level(self) -> float | None:
        return LEVEL if self.limits else None

    def _learn(self, state: Any, row: Row, level: Any) -> tuple[Any, Told]:
        after, outcomes, members = [], [], []
        for position, (learner, task) in enumerate(zip(self.learners, self.tasks, strict=True)):
            y = row.targets[position]
            target = jnp.stack([task.to_learner(y), row.weight])
            new, info = learner.step(state[position], self._inputs(row, position), target)
            after.append(new)
            outcomes.append(task.outcome(info.prediction, y, level=level))
            members.append(jnp.append(jnp.sum(info.prediction.weights, axis=1), info.memory))
        return tuple(after), Told(tuple(outcomes), jnp.concatenate(members))

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

    def _restarted(self, state: Any, reset: Any) -> Any:
        """The state at the start of a new sequence, where one starts."""
        if reset is None:
            return state

        def restart(state: Any) -> Any:
            return tuple(learner.restart(own) for learner, own in zip(self.learners, state, strict=True))

        return jax.lax.cond(reset, restart, lambda state: state, state)

    def _silent(self, state: Any, feed: Feed) -> Told:
        """Zeros in the shape of what a block tells."""
        row = jax.tree.map(lambda leaf: leaf[0], feed)
        shapes = jax.eval_shape(self._predict, _at(state, row.slots), row.rows, self._level)
        count = feed.rows.weight.shape[0]
        return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes)


class Pending:
    """Results that may still be in the making: the host goes on reading while the device learns."""

    def __init__(self, pieces: list[tuple[Told, int]]):
        self._pieces = pieces

    def wait(self) -> Told:
        """The results, once they are there, as NumPy arrays."""
        parts = [jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n], told) for told, count in self._pieces]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _parts(feed: Feed) -> Iterator[tuple[Feed, int]]:
    """Blocks of rows, padded to one of the lengths that programs are compiled for, and how many rows count."""
    total = len(feed.rows.weight)
    for first in range(0, total, BLOCKS[-1]):
        part = jax.tree.map(lambda leaf, first=first: leaf[first : first + BLOCKS[-1]], feed)
        count = len(part.rows.weight)
        length = next(size for size in BLOCKS if size >= count)
        yield jax.tree.map(lambda leaf, length=length: _padded(leaf, length), part), count


def _padded(rows: np.ndarray, length: int) -> np.ndarray:
    if len(rows) == length:
        return rows
    full = np.zeros((length, *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full


def _at(state: Any, slot: Any) -> Any:
    """The state of one model of many, or the only one."""
    return state if slot is None else jax.tree.map(lambda leaf: leaf[slot], state)


def _put(state: Any, slot: Any, new: Any) -> Any:
    """`state` with that model's replaced."""
    return new if slot is None else jax.tree.map(lambda leaf, value: leaf.at[slot].set(value), state, new)
