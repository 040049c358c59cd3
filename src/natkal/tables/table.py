"""Rows of numbers through the learner that a table gets: predict, learn, grow, and give answers in the user's units.

The command line, scikit-learn, river, the server and `nk.learn` are doors to this one class: they turn what the user
has into numbers, and what it answers into what the user expects.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import jax
import numpy as np

from natkal.banks.resize import resize
from natkal.banks.spec import BankSpec
from natkal.compiling.float64 import float64
from natkal.compiling.policy import run_once
from natkal.errors import StreamError
from natkal.settings.options import Options, check_options, past_lags
from natkal.storage.parts import Stored
from natkal.storage.states import array_template, restored, state_arrays
from natkal.tables.engine.batch import Pending, Predictions, TableBatch
from natkal.tables.engine.loop import Loop, Progress
from natkal.tables.engine.slots import FIRST_SLOTS, slots_for, slots_of, spread, with_slots
from natkal.tables.engine.stages import BLOCK
from natkal.tables.learner.architectures import Inputs, Shape
from natkal.tables.learner.choose import build, check_spec, choose_within, must_restart, within_memory
from natkal.tables.learner.past import Past
from natkal.tables.learner.tasks import Task, make_task

SHORT_BLOCK = 32
SERIES_INPUTS = 8
"""A row of a series has no plain number beside its target and its past, and so many other inputs at most: a date."""
LOOPS_KEPT = 32
"""The compiled programs of so many kinds of tables stay in memory."""


@runtime_checkable
class Elsewhere(Protocol):
    """Another place in which the models of a table's keys learn."""

    def run(self, batch: TableBatch) -> Pending:
        """Predict each row, then learn it."""
        ...

    def collect(self) -> None:
        """Bring `TableLearner.held` up to date."""
        ...

    def replaced(self) -> None:
        """`TableLearner.held` was set: go on from it."""
        ...


@dataclasses.dataclass(frozen=True)
class TargetShape:
    """One target: its task, how many classes there is room for, and how many of them are known (0 for numbers)."""

    task: str
    classes: int = 0
    known: int = 0


class TableLearner:
    """The learner of one table, or of one for each key, with its state.

    `scaled` says for each feature whether it is a plain number to be standardised. `limits`: whether the limits of
    intervals are computed with each prediction. `in_order`: whether rows are learned in the order in which they come.
    """

    @float64
    def __init__(
        self,
        options: Options,
        scaled: Sequence[bool],
        targets: Sequence[TargetShape],
        *,
        keyed: bool = False,
        limits: bool = True,
        in_order: bool = True,
    ):
        check_options(options)
        self.options = options
        self.keyed = keyed
        self.limits = limits
        self.fan_in = max(len(scaled), 1)
        self.series = in_order and not any(scaled) and len(scaled) <= SERIES_INPUTS
        """Whether the rows are those of a series."""
        self.alone = not scaled
        self.scaled = list(scaled)
        self.targets = list(targets)
        lags = past_lags(options.past)
        self.pasts = [Past(target.classes, lags) for target in targets]
        self.known = [target.known for target in targets]
        """How many classes of each target are known by now."""
        self.keys: dict[str, int] = {}
        self.room = len(self.scaled)
        self.elsewhere: Elsewhere | None = None
        """Where the models of the keys learn, if not here."""
        self._progress: tuple[Any, list[Progress]] | None = None
        self.block = BLOCK
        self.specs = choose_within(options, *self._sizes(), keyed, in_order)
        """The learner of each target, chosen once for the columns and classes there are at the start."""
        self._build()
        self.held: Any = spread(self.loop.start(), FIRST_SLOTS) if keyed else self.loop.start()
        """The state as it is known here."""

    @property
    def state(self) -> Any:
        """All that was learned, from wherever it was learned."""
        if self.elsewhere is not None:
            self.elsewhere.collect()
        return self.held

    @state.setter
    def state(self, new: Any) -> None:
        self.held = new
        if self.elsewhere is not None:
            self.elsewhere.replaced()

    # -- what the learner is made of ---------------------------------------------------------------------------------

    def _build(self) -> None:
        """The loop for the features and classes there is room for; one that was compiled before is used again."""
        options = self.options
        self.loop = _loop(self.specs, *self._sizes(), self.limits, options.level, options.has_memory, self.block)

    def _sizes(self) -> tuple[tuple[Shape, ...], tuple[Task, ...]]:
        """The inputs there is room for, and the task with as many classes, of each target."""
        tasks = tuple(make_task(target.task, target.classes) for target in self.targets)
        return tuple(self._shape(past, task) for past, task in zip(self.pasts, tasks, strict=True)), tasks

    def _shape(self, past: Past, task: Task) -> Shape:
        free = [True] * (self.room - len(self.scaled))
        return Shape(
            columns=past.columns + self.room,
            scaled=(*past.scaled, *self.scaled, *free),
            past=past.columns,
            fan_in=self.fan_in + past.columns,
            naive=past.naive if task.linear else (),
            series=self.series,
            alone=self.alone,
        )

    def take_few_rows(self) -> None:
        """A few rows come at a time from now on: the programs are those of short blocks."""
        self.block = SHORT_BLOCK
        self._build()

    def with_limits(self) -> None:
        """Predictions come with the limits of their intervals from now on."""
        self.limits = True
        self._build()

    @property
    def parameters(self) -> int:
        """How many parameters the members have together, over all targets."""
        return sum(
            group.size * group.first.size  # pyright: ignore[reportAttributeAccessIssue]
            for learner in self.loop.learners
            for group in learner.bank.groups
        )

    @property
    def refused(self) -> int:
        """How often a member of any key or target went bad: its step was not finite, or it had stopped learning."""
        return sum(int(np.sum(np.asarray(own.bank.reseeded))) for own in self.state)

    @property
    def past_columns(self) -> int:
        """How many inputs are made of past targets, over all targets."""
        return sum(past.columns for past in self.pasts)

    @property
    def member_names(self) -> list[str]:
        """What `Predictions.weights` says, number by number, and then `effective_rows`; of the first target."""
        return [*(f"weight {name}" for name in self.specs[0].member_names), "effective memory"]

    # -- rows ----------------------------------------------------------------------------------------------------------

    def rows(
        self,
        numbers: np.ndarray,
        targets: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        keys: Sequence[str] = (),
        *,
        tell_past: bool = True,
    ) -> TableBatch:
        """Rows as the engine takes them, with the past of each target.

        `numbers` (n, features) has NaN where a value is missing, `targets` (n, targets) where a label is. With
        `tell_past` each target is known from the next row on; where labels come late, `know` says when.
        """
        count = len(numbers)
        if targets is None:
            targets = np.full((count, len(self.targets)), np.nan)
        pasts, known = [], np.zeros((count, len(self.targets)), np.int32)
        for position, past in enumerate(self.pasts):
            own = targets[:, position]
            pasts.append(past.rows(own, list(keys)) if tell_past else past.asked(count, keys))
            if self.targets[position].classes and not (own >= self.known[position]).any():
                known[:, position] = self.known[position]
            elif self.targets[position].classes:
                seen = np.maximum.accumulate(np.nan_to_num(own, nan=0.0)).astype(np.int32) + 1 if count else own
                known[:, position] = np.maximum(seen, self.known[position])
                self.known[position] = int(known[-1, position]) if count else self.known[position]
        return TableBatch(numbers, tuple(pasts), known, targets, np.ones(count) if weight is None else weight)

    @float64
    def know_scales(self, rows: TableBatch) -> None:
        """Scale inputs and targets by all of these rows, which are about to be learned, and not by those so far."""
        placed = self.loop.arranged(rows)
        self.state = tuple(
            learner.units.with_scales(
                own, Inputs(placed[position].numbers, None), self._learners_values(position, rows)
            )
            for position, (learner, own) in enumerate(zip(self.loop.learners, self.state, strict=True))
        )

    def _learners_values(self, position: int, rows: TableBatch) -> np.ndarray:
        y: Any = rows.targets[:, position]
        return np.asarray(self.loop.tasks[position].to_learner(y))

    def know(self, position: int, value: float, key: str = "") -> None:
        """A label that came late is part of the past from now on."""
        self.pasts[position].learn(value, key)

    def learn(self, batch: TableBatch, *, keys: Sequence[str] = (), resets: Any = None) -> Pending:
        """Predict each row, then learn it; where labels come late, `ask` and `late` say which of the two."""
        if self.keyed and batch.slot is None:
            batch = batch._replace(slot=self._slots(keys))
        return self._run(batch if resets is None else batch._replace(reset=resets))

    @float64
    def _run(self, batch: TableBatch) -> Pending:
        """Rows through the loop, which takes the state over."""
        if self.elsewhere is not None:
            return self.elsewhere.run(batch)
        progress = self._where()
        self.state, pending = self.loop.run(self.state, batch, progress)
        self._progress = (self.state, progress)
        return pending

    def _where(self) -> list[Progress]:
        """Where each target stands, read from the state after anything but `learn` has changed it."""
        if self._progress is None or self._progress[0] is not self.state:
            self._progress = (self.state, self.loop.progress(self.state))
        return self._progress[1]

    @float64
    def predict(
        self,
        batch: TableBatch,
        *,
        keys: Sequence[str] = (),
        resets: Any = None,
        level: float | None = None,
        limits: bool | None = None,
    ) -> Predictions:
        """Predictions without learning; a key never seen gets what every model starts from.

        `level` is the coverage of the limits; unless given they are computed where `limits` says so, the learner's own
        unless given.
        """
        if level is None and (self.limits if limits is None else limits):
            level = self.options.level
        if self.keyed and self.options.has_memory:
            batch = batch._replace(slot=self._slots(keys))
        elif self.keyed:
            free = len(self.keys)  # one slot serves all of them, as nothing happens to it
            self.make_room(free + 1)
            batch = batch._replace(slot=np.array([self.keys.get(key, free) for key in keys], np.int32))
        self.state, told = self.loop.predict(self.state, batch._replace(reset=resets), level)
        return told

    # -- growth --------------------------------------------------------------------------------------------------------

    def add_features(self, scaled: Sequence[bool]) -> None:
        """Room for more features, which come behind the ones there are; what was learned stays."""
        wider = [*self.scaled, *scaled]
        if len(wider) <= self.room and all(scaled):
            self.scaled = wider
            return
        room = self.room if len(wider) <= self.room else max(len(wider), 2 * self.room)
        self._grow_into(wider, room, self.targets)

    def add_classes(self, position: int, count: int) -> None:
        """Room for at least so many classes of a target; twice as many as there were, so that this is rare."""
        target = self.targets[position]
        if count <= target.classes:
            return
        task = "multiclass" if target.task == "binary" else target.task
        targets = list(self.targets)
        targets[position] = TargetShape(task, max(count, 2 * target.classes), target.known)
        self._grow_into(self.scaled, self.room, targets)

    @float64
    def _grow_into(self, scaled: list[bool], room: int, targets: list[TargetShape]) -> None:
        """The same members for more columns and classes; nothing has changed where the memory is too little for it."""
        before, old, sizes = (self.scaled, self.room, self.targets), self.loop, self._sizes()
        self.scaled, self.room, self.targets = scaled, room, targets
        shapes, tasks = self._sizes()
        try:
            if self.options.bytes is not None:
                self.specs = within_memory(self.options, self.specs, shapes, tasks, self._weights())
        except StreamError:
            self.scaled, self.room, self.targets = before
            raise
        sizes = zip(*sizes, shapes, tasks, strict=True)
        restart = [must_restart(spec, *own) for spec, own in zip(self.specs, sizes, strict=True)]
        self._build()

        def move(state: Any) -> Any:
            parts = zip(old.learners, self.loop.learners, state, restart, strict=True)
            return tuple(resize(small, large, own, restart=again) for small, large, own, again in parts)

        self.state = run_once(jax.vmap(move) if self.keyed else move, self.state)

    def _weights(self) -> list[dict[str, float]]:
        """The weight of each member of each target; with keys, the mean over them."""
        found = []
        for spec, own in zip(self.specs, self.state, strict=True):
            by_law = np.exp(np.asarray(own.bank.log_weights))
            weights = by_law.sum(axis=-1).reshape(-1, by_law.shape[-2]).mean(axis=0)
            found.append(dict(zip(spec.member_names, weights.tolist(), strict=True)))
        return found

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _slots(self, keys: Sequence[str]) -> np.ndarray:
        """The slot of each key, a new one for a key not seen before."""
        for key in keys:
            self.keys.setdefault(key, len(self.keys))
        self.make_room(len(self.keys))
        return np.array([self.keys[key] for key in keys], np.int32)

    @property
    def slots(self) -> int:
        """How many slots a checkpoint with these keys has."""
        return slots_for(len(self.keys))

    def slot(self, key: str) -> int:
        """The slot of one key."""
        return int(self._slots([key])[0])

    def make_room(self, needed: int) -> None:
        """Twice the slots, as often as needed."""
        self._grow(slots_for(needed))

    def new_model(self) -> Any:
        """The state of one more model, with a leading axis."""
        return spread(self.loop.start(), 1)

    @float64
    def _grow(self, size: int) -> None:
        """So many slots at least; new ones are new models, wherever the others learn."""
        if size > slots_of(self.held):
            self.held = with_slots(self.held, self.new_model(), size)

    def one(self, slot: int | None = None) -> tuple[Any, ...]:
        """The states of one model, target by target: the only one, or that of a slot."""
        return jax.tree.map(lambda leaf: leaf[slot], self.state) if self.keyed else self.state

    # -- on disk -------------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """All that is not numbers on the device."""
        return {
            "fan_in": self.fan_in,
            "series": self.series,
            "alone": self.alone,
            "room": self.room,
            "specs": [spec.to_json() for spec in self.specs],
            "scaled": self.scaled,
            "targets": [dataclasses.asdict(target) for target in self.targets],
            "known": self.known,
            "keys": list(self.keys),
            "pasts": [past.state() for past in self.pasts],
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Every number of the state, by name, on the host."""
        return state_arrays(self.state)

    @classmethod
    def from_header(cls, options: Options, header: Mapping[str, Any], *, keyed: bool, limits: bool) -> Self:
        """A learner like the one that wrote the header, at its start; `restore` brings its numbers back."""
        targets = [
            TargetShape(str(entry["task"]), int(entry["classes"]), int(entry["known"])) for entry in header["targets"]
        ]
        made = cls.__new__(cls)
        made.options, made.keyed, made.limits = options, keyed, limits
        made.fan_in, made.room = int(header["fan_in"]), int(header["room"])
        made.series, made.alone = bool(header["series"]), bool(header["alone"])
        made.scaled, made.targets = [bool(flag) for flag in header["scaled"]], targets
        made.known = [int(count) for count in header["known"]]
        made.pasts = [Past(target.classes, past_lags(options.past)) for target in targets]
        for past, state in zip(made.pasts, header["pasts"], strict=True):
            past.restore(state)
        made.keys = {str(key): slot for slot, key in enumerate(header["keys"])}
        made._progress, made.elsewhere, made.block = None, None, BLOCK
        made.specs = tuple(BankSpec.from_json(kept) for kept in header["specs"])
        for spec in made.specs:
            check_spec(spec, options)
        made._build()
        return made

    @float64
    def template(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Name, shape and dtype of each array of a checkpoint with these keys; nothing is allocated."""
        one = array_template(self.loop.state_shapes())
        return {name: ((self.slots, *shape) if self.keyed else shape, dtype) for name, (shape, dtype) in one.items()}

    def stored(self) -> Stored:
        """All that is not numbers on the device, and every number of the state by its place."""
        return Stored(self.header(), self.arrays())

    @float64
    def restore(self, kept: Stored) -> None:
        """The numbers again, on a learner made `from_header`."""
        kept.check(self.template())
        self.state = restored(self.loop.state_shapes(), kept.arrays)


@functools.lru_cache(maxsize=LOOPS_KEPT)
def _loop(
    specs: tuple[BankSpec, ...],
    shapes: tuple[Shape, ...],
    tasks: tuple[Task, ...],
    limits: bool,
    level: float,
    has_memory: bool,
    block: int,
) -> Loop:
    """The programs of a kind of table; those of the last ones are used again."""
    learners = tuple(build(*one) for one in zip(specs, shapes, tasks, strict=True))
    return Loop(learners, tasks, shapes, limits, level, has_memory, block)
