"""A table learner that is called with a few rows at a time, while others read its last whole state.

The state travels as one vector of words (`drivers.live.Packing`), the rows as one table of numbers: each array of a
call costs microseconds. The state before a call stays valid, so readers use it while the next one is computed. Blocks
have one of two lengths, so that few programs are compiled, and every row goes through the loop of `loop.py`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from natkal.compiling import LARGEST_STATE_BYTES, compile_loop
from natkal.drivers.live import Packing
from natkal.tabular.loop import Feed, Loop, Row, Told
from natkal.tabular.table_learner import TableLearner

FEW_ROWS, MANY_ROWS = 16, 1024
"""Rows of a block that is learned; a large state, whose every row takes long, needs the short ones only."""
ASKED_ROWS = 64
"""Rows of a block that is predicted."""
_PROGRAMS: dict[Any, "Programs"] = {}
"""By loop and number of slots; a loop is one object for the same question (`table_learner.py`)."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Rows as one table of numbers: those of each target, known classes, targets, weight, slot, reset."""

    widths: tuple[int, ...]
    keyed: bool
    resets: bool

    def pack(self, rows: Row, slots: np.ndarray | None, resets: np.ndarray | None, length: int) -> np.ndarray:
        """A table of this many rows, zero behind the given ones."""
        count, targets = len(rows.weight), len(self.widths)
        table = np.zeros((length, sum(self.widths) + 2 * targets + 1 + self.keyed + self.resets))
        first = 0
        for part, width in zip(rows.numbers, self.widths, strict=True):
            table[:count, first : first + width] = part
            first += width
        table[:count, first : first + targets] = rows.known
        table[:count, first + targets : first + 2 * targets] = rows.targets
        table[:count, first + 2 * targets] = rows.weight
        if self.keyed:
            table[:count, first + 2 * targets + 1] = slots
        if self.resets and resets is not None:
            table[:count, -1] = resets
        return table

    def unpack(self, table: Any) -> Feed:
        """The feed again, inside a program."""
        edges = np.cumsum([0, *self.widths])
        numbers = tuple(table[:, first:last] for first, last in itertools.pairwise(edges.tolist()))
        first, targets = int(edges[-1]), len(self.widths)
        row = Row(
            numbers,
            table[:, first : first + targets].astype(np.int32),
            table[:, first + targets : first + 2 * targets],
            table[:, first + 2 * targets],
        )
        slots = table[:, first + 2 * targets + 1].astype(np.int32) if self.keyed else None
        return Feed(row, slots, table[:, -1] > 0 if self.resets else None)


class Programs:
    """The compiled calls on packed states of one loop."""

    def __init__(self, loop: Loop, packing: Packing, layout: Layout):
        self.layout = layout
        self.pack, self.unpack = jax.jit(packing.pack), jax.jit(packing.unpack)
        self._told: dict[str, Packing] = {}
        self._ready: dict[tuple[str, int], Callable[..., Any]] = {}

        def learn(held: Any, table: Any, count: Any) -> Any:
            state, told = loop.block(packing.unpack(*held), layout.unpack(table), count)
            return packing.pack(state), self._packed("learn", told)

        def predict(held: Any, table: Any, count: Any) -> Any:
            return self._packed("predict", loop.answers(packing.unpack(*held), layout.unpack(table), count))

        self._loops = {"learn": compile_loop(learn), "predict": compile_loop(predict)}

    def _packed(self, name: str, told: Told) -> Any:
        length = told.members.shape[0]
        self._told[f"{name} {length}"] = packing = Packing(told)
        return packing.pack(told)

    def call(self, name: str, held: Any, table: np.ndarray, count: int) -> Any:
        """`learn` or `predict`; a program is chosen and compiled at the first call of each length."""
        key = (name, len(table))
        program = self._ready.get(key)
        if program is None:
            program = self._ready[key] = self._loops[name].program(held, table, count)
        return program(held, table, count)

    def read(self, name: str, told: Any, length: int, count: int) -> Told:
        """What a call told, of the rows that count, as NumPy arrays; waits for it."""
        whole = self._told[f"{name} {length}"].read(*told)
        return jax.tree.map(lambda leaf: leaf[:count], whole)


class Learned:
    """What a block of rows will have told; `wait` for it."""

    def __init__(self, programs: Programs, pieces: list[tuple[Any, int, int]]):
        self._programs, self._pieces = programs, pieces

    def wait(self) -> Told:
        """The results as NumPy arrays."""
        return _joined([self._programs.read("learn", *piece) for piece in self._pieces])


@dataclasses.dataclass(frozen=True)
class Reader:
    """The last whole state: predictions from it change nothing and wait for nobody."""

    programs: Programs
    held: Any
    keys: Mapping[str, int]
    free: int
    known: tuple[int, ...]
    past: Callable[[str], list[np.ndarray]]
    room: int

    def predict(self, numbers: np.ndarray, keys: Sequence[str] = (), resets: np.ndarray | None = None) -> Told:
        """Each row as if it came next; a key never seen gets what every model starts from."""
        count = len(numbers)
        free = np.full((count, self.room - numbers.shape[1]), np.nan)
        pasts = [self.past(key) for key in keys] if keys else [self.past("")] * count
        rows = Row(
            tuple(
                np.concatenate([np.stack([past[at] for past in pasts]), numbers, free], axis=1)
                for at in range(len(self.known))
            ),
            np.repeat(np.array([self.known], np.int32), count, axis=0),
            np.full((count, len(self.known)), np.nan),
            np.ones(count),
        )
        slots = np.array([min(self.keys.get(key, self.free), self.free) for key in keys]) if keys else None
        told = []
        with jax.enable_x64(True):
            for first in range(0, count, ASKED_ROWS):
                part, own, starts = _part((rows, slots, resets), first, ASKED_ROWS)
                table = self.programs.layout.pack(part, own, starts, ASKED_ROWS)
                some = self.programs.call("predict", self.held, table, len(part.weight))
                told.append(self.programs.read("predict", some, ASKED_ROWS, len(part.weight)))
        return _joined(told)


class LiveTable:
    """A table learner whose state is packed. One thread calls `learn`; `reader` gives what others may use."""

    def __init__(self, learner: TableLearner):
        learner.with_limits()
        self.learner = learner
        self._slots = 0
        self._warm = False
        self.load()

    def load(self) -> None:
        """Take the learner's state over, after it was restored or has grown."""
        learner = self.learner
        with jax.enable_x64(True):
            if learner.keyed:
                learner.make_room(len(learner.keys) + 1)
                self._slots = jax.tree.leaves(learner.state)[0].shape[0]
            asked = (learner.loop, self._slots)
            if asked not in _PROGRAMS:
                widths = tuple(past.columns + learner.room for past in learner.pasts)
                layout = Layout(widths, learner.keyed, learner.options.has_memory)
                _PROGRAMS[asked] = Programs(learner.loop, Packing(learner.state), layout)
            self._programs = _PROGRAMS[asked]
            self._held = self._programs.pack(learner.state)
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(self._held))
            self._longest = MANY_ROWS if size <= LARGEST_STATE_BYTES else FEW_ROWS
        if self._warm:
            self.warm_up()

    def store(self) -> None:
        """Give the learner its state, for a checkpoint or before it grows."""
        with jax.enable_x64(True):
            state = self._programs.unpack(*self._held)
            slots = self.learner.slots if self.learner.keyed else None
            self.learner.state = jax.tree.map(lambda leaf: leaf[:slots], state) if slots else state

    def warm_up(self) -> None:
        """Compile every program there is, by calls with no rows; also after the learner has grown."""
        self._warm = True
        with jax.enable_x64(True):
            for name, length in {("learn", FEW_ROWS), ("learn", self._longest), ("predict", ASKED_ROWS)}:
                empty = Row(
                    tuple(np.zeros((0, width)) for width in self._programs.layout.widths),
                    np.zeros((0, len(self.learner.targets))),
                    np.zeros((0, len(self.learner.targets))),
                    np.zeros(0),
                )
                table = self._programs.layout.pack(empty, np.zeros(0), np.zeros(0), length)
                jax.block_until_ready(self._programs.call(name, self._held, table, 0))

    def learn(self, rows: Row, *, keys: Sequence[str] = (), resets: np.ndarray | None = None) -> Learned:
        """Predict each row, then learn it."""
        slots = self._slots_of(keys) if self.learner.keyed else None
        pieces = []
        with jax.enable_x64(True):
            for first in range(0, len(rows.weight), self._longest):
                part, own, starts = _part((rows, slots, resets), first, self._longest)
                count = len(part.weight)
                length = FEW_ROWS if count <= FEW_ROWS else self._longest
                table = self._programs.layout.pack(part, own, starts, length)
                self._held, told = self._programs.call("learn", self._held, table, count)
                pieces.append((told, length, count))
        return Learned(self._programs, pieces)

    def add_classes(self, position: int, count: int) -> None:
        """Room for at least so many classes of a target."""
        self.store()
        self.learner.add_classes(position, count)
        self.load()

    def reader(self) -> Reader:
        """The state after the last block, for predictions."""
        learner = self.learner
        if learner.keyed:
            past = lambda key: [own.inputs(key) for own in learner.pasts]  # noqa: E731
        else:
            now = [own.inputs() for own in learner.pasts]
            past = lambda key: now  # noqa: E731
        return Reader(
            programs=self._programs,
            held=self._held,
            keys=learner.keys,
            free=len(learner.keys),
            known=tuple(learner.known),
            past=past,
            room=learner.room,
        )

    def _slots_of(self, keys: Sequence[str]) -> np.ndarray:
        """The slot of each key, with one to spare for keys that are only asked about."""
        needed = len(self.learner.keys.keys() | set(keys)) + 1
        if needed > self._slots:
            self.store()
            self.learner.make_room(needed)
            self.load()
        return np.array([self.learner.slot(key) for key in keys])


def _part(rows: Any, first: int, length: int) -> Any:
    if first == 0 and len(rows[0].weight) <= length:
        return rows
    return jax.tree.map(lambda leaf: leaf[first : first + length], rows)


def _joined(parts: list[Told]) -> Told:
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
