"""One target's rows, a block at a time, in three stages that are compiled each by itself.

1. `scale`: the rows in the units of the learner. It depends on no member.
2. `members`: each group of members takes all steps of the block. Groups do not depend on each other.
3. `weigh`: the mixture's prediction for each row, and the weights after it.

In each stage one row follows the other, so the result is that of one step after the other (`Scaled.step`), and a block
may end anywhere. Separate programs compile faster than one, at the same time, and each is small enough to become one
machine function; a group whose members have all stopped is left out. No block reaches over a step at which the
selection decides which members run (banks/selection.py).
"""

import dataclasses
import functools
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.bank import DEAD_AFTER
from natkal.banks.group import entry, with_entry
from natkal.banks.running import Room, put_back, running_bank, spread_out, taken, told_of
from natkal.banks.scaled import Scaled
from natkal.banks.selection import REVIEW, room_for
from natkal.banks.units.standardise import ScaledState, Standard
from natkal.compiling.policy import blank, compile_loop, inside_transformation, run_once, run_together
from natkal.tables.engine.batch import Predictions
from natkal.tables.learner.architectures import Inputs
from natkal.tables.learner.tasks import Task
from natkal.typing import Array

BLOCK = REVIEW
"""Steps of a block; shorter ones are padded, so that one program serves all."""


LARGEST_GROUP_BYTES = 16 << 20
"""A group up to this size, over the number of outputs, is one machine function. Its members, each a fraction of it,
take turns; with many outputs most of the work is matrix products, which a library does better.
"""


class Steps(NamedTuple):
    """The steps of one target, one entry each; None where it does not apply.

    `replay` is -1, or the place of the first row that is learned again in the scales that the first rows made.
    `asked`: the row is predicted and leaves no trace in the scales. `slots`: which model a row belongs to. `resets`: a
    new sequence starts.
    """

    numbers: Any
    known: Any
    target: Any
    weight: Any
    replay: Any = None
    asked: Any = None
    slots: Any = None
    resets: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Stages:
    """The programs of one target. `level` is the coverage of the limits that are computed, or None."""

    learner: Scaled
    task: Task
    level: float | None

    def run(self, state: ScaledState, steps: Steps, count: Any) -> tuple[ScaledState, Predictions]:
        """One block; only the first `count` of its steps are taken."""
        self._compile(state, steps)
        scales, standard = self._scale(state._replace(bank=()), steps, count)
        rest, members, told = state.bank._replace(members=()), [], []
        where = (steps.slots, steps.resets)
        running, room, lost = self._running(rest)
        for index, own in enumerate(state.bank.members):
            if not running[index]:  # none runs: the group takes no step and tells nothing
                members.append(own)
                told.append(self._nothing(index, own, rest, standard, where))
                continue
            if lost[index]:
                own = self._restart(index, rest)
            after, said = self._members[index](own, rest, standard, where, count)
            members.append(after)
            told.append(said)
        weigh = self._weigh(room)
        rest, outcomes = weigh(rest, tuple(told), standard, (steps.target, steps.known), steps.slots, count)
        return scales._replace(bank=rest._replace(members=tuple(members))), outcomes

    def _running(self, rest: Any) -> tuple[tuple[int, ...], Room, list[bool]]:
        """How many members of each group run, how many the mixing has room for, and whether all have stopped learning.

        Where members are not selected all run, and none starts again: a block may begin anywhere.
        """
        bank = self.learner.bank
        none = [False] * len(bank.sizes)
        if rest.selection is None or inside_transformation(rest):
            return bank.sizes, bank.sizes, none
        silent, selection = jax.device_get((rest.silent, rest.selection))
        lost = none if (silent < DEAD_AFTER).all() else [bool(one) for one in bank.lost(rest)]
        running = tuple(int(own.running) for own in selection.running)
        return running, room_for(running, bank.sizes, int(selection.seen)), lost

    def _restart(self, index: int, rest: Any) -> Any:
        """New states of a group whose members have all stopped learning."""
        return run_once(functools.partial(self.learner.bank.start, index), rest, name=self._name("restart", index))

    def _nothing(self, index: int, *arguments: Any) -> Any:
        """What a group tells that has stopped."""
        if index not in self._silence:
            shapes = self._members[index].shapes(*arguments, np.int32(0))[1]
            self._silence[index] = jax.device_put(blank(shapes))
        return self._silence[index]

    @functools.cached_property
    def _silence(self) -> dict[int, Any]:
        return {}

    def _compile(self, state: ScaledState, steps: Steps) -> None:
        """Compile all programs at once, on all cores, by running each on a block of no steps."""
        if len(state.bank.members) == 1 or self._compiled or inside_transformation(state):
            return
        self._compiled.append(True)
        none = np.int32(0)
        scales, rest = state._replace(bank=()), state.bank._replace(members=())
        standard = self._scale.shapes(scales, steps, none)[1]
        where = (steps.slots, steps.resets)
        groups = [
            (program, (own, rest, standard, where, none))
            for program, own in zip(self._members, state.bank.members, strict=True)
        ]
        told = tuple(said for _, said in run_together([partial(group.shapes, *asked) for group, asked in groups]))
        jobs = [partial(group.prepare, *asked) for group, asked in reversed(groups)]
        weigh = self._weigh(self.learner.bank.sizes)
        jobs.append(partial(weigh.prepare, rest, told, standard, (steps.target, steps.known), steps.slots, none))
        jobs.append(partial(self._scale.prepare, scales, steps, none))
        run_together(jobs)

    def _name(self, *stage: Any) -> Any:
        """What a program of this target is kept under."""
        return None if self.learner.name is None else (self.learner.name, self.task, self.level, *stage)

    @functools.cached_property
    def _compiled(self) -> list[bool]:
        return []

    @functools.cached_property
    def _scale(self):
        def one(scales: ScaledState, step: Steps) -> tuple[ScaledState, Standard]:
            inputs = Inputs(features=step.numbers, known=step.known)
            target = jnp.stack([self.task.to_learner(step.target), step.weight])
            after, row = self.learner.units.standardise(scales, inputs, target)
            if step.replay is not None:
                place = jnp.maximum(step.replay, 0)
                kept = jax.tree.map(lambda leaf: entry(leaf, place), (scales.first_inputs, scales.first_targets))
                again = scales, self.learner.units.standardise_again(scales, *kept)
                after, row = _choose(step.replay >= 0, again, (after, row))
            if step.asked is not None:
                asked = self.learner.units.standardise_only(scales, inputs)
                nothing = jnp.stack([jnp.full_like(row.target[0], jnp.nan), row.target[1]])
                after, row = _choose(step.asked, (scales, asked._replace(target=nothing)), (after, row))
            return after, row

        def block(scales: ScaledState, steps: Steps, count: Array) -> tuple[ScaledState, Standard]:
            return _each_row(one, scales, steps, steps.slots, count)

        return compile_loop(block, donate_argnums=(0,), name=self._name("scale"))

    @functools.cached_property
    def _members(self):
        return [self._group(index) for index in range(len(self.learner.bank.groups))]

    def _group(self, index: int):
        bank = self.learner.bank

        def block(members: Any, rest: Any, rows: Standard, where: tuple[Any, Any], count: Array) -> tuple[Any, Any]:
            slots, resets = where

            def one(own: Any, row: tuple[Standard, Any, Any]) -> tuple[Any, Any]:
                standard, slot, reset = row
                if reset is not None:
                    restarted = lambda own: bank.groups[index].map(lambda one, s: one.restart(s), own)  # noqa: E731
                    own = jax.lax.cond(reset, restarted, lambda own: own, own)
                return bank.advance(index, own, _at(rest, slot), standard.inputs, standard.target)

            if rest.selection is not None:
                members = bank.revive(index, members, rest)
            return _each_row(one, members, (rows, slots, resets), slots, count)

        largest = LARGEST_GROUP_BYTES // self.task.outputs
        return compile_loop(block, donate_argnums=(0,), largest=largest, name=self._name("members", index))

    def _weigh(self, room: Room):
        """The program that mixes so many members of each group."""
        if room not in self._weighing:
            self._weighing[room] = self._weigh_for(room)
        return self._weighing[room]

    @functools.cached_property
    def _weighing(self) -> dict[Room, Any]:
        return {}

    def _weigh_for(self, room: Room):
        whole = self.learner.bank
        few = room != whole.sizes
        bank = running_bank(whole, room) if few else whole

        def one(rest: Any, row: tuple[Any, Standard, tuple[Array, Array]]) -> tuple[Any, Predictions]:
            said, standard, (y, classes) = row
            after, info = bank.weigh(rest, said, standard.target)
            prediction = self.learner.units.in_users_units(info.prediction, standard.units)
            log_prob = None
            if not self.task.classes:
                log_prob = self.learner.units.log_prob(standard, info, prediction, self.task.to_learner(y))
            outcome = self.task.outcome(prediction, y, classes, level=self.level, log_prob=log_prob)
            told = Predictions((outcome,), jnp.sum(prediction.weights, axis=1), info.memory)
            return self.learner.follow_units(after, standard), told

        def block(
            rest: Any, told: Any, rows: Standard, targets: tuple[Array, Array], slots: Any, count: Array
        ) -> tuple[Any, Predictions]:
            rest = rest if rest.selection is None else whole.after_reviving(rest)
            own, said = (taken(rest, room), told_of(told, rest, room)) if few else (rest, told)
            after, answers = _each_row(one, own, (said, rows, targets), slots, count)
            if few:
                answers = answers._replace(weights=spread_out(answers.weights, rest, room))
                after = put_back(rest, after, room)
            # no block reaches over a decision, so that one can only fall on its last step
            return jax.lax.cond(count > 0, whole.decide, lambda rest: rest, after), answers

        return compile_loop(block, donate_argnums=(0,), name=self._name("weigh", room))


def _each_row(function: Any, state: Any, rows: Any, slots: Any, count: Array) -> tuple[Any, Any]:
    """`function(state, row) -> (state, told)` for the first `count` rows, one after the other; the rest tells zeros."""

    @jax.jit  # traced once, for its shapes and for the loop
    def one(row: Array, state: Any) -> tuple[Any, Any]:
        slot = None if slots is None else entry(slots, row)
        after, told = function(_at(state, slot), jax.tree.map(lambda leaf: entry(leaf, row), rows))
        return _put(state, slot, after), told

    def body(row: Array, carried: tuple[Any, Any]) -> tuple[Any, Any]:
        after, told = one(row, carried[0])
        return after, jax.tree.map(lambda whole, part: with_entry(whole, row, part), carried[1], told)

    shapes = jax.eval_shape(one, jnp.zeros((), jnp.int32), state)[1]
    length = len(jax.tree.leaves(rows)[0])
    silent = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, count, body, (state, silent))


def _choose(condition: Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda first, second: jnp.where(condition, first, second), one, other)


def _at(state: Any, slot: Any) -> Any:
    """The state of one model of many, or the only one."""
    return state if slot is None else jax.tree.map(lambda leaf: entry(leaf, slot), state)


def _put(state: Any, slot: Any, new: Any) -> Any:
    """`state` with that model's replaced."""
    return new if slot is None else jax.tree.map(lambda leaf, value: with_entry(leaf, slot, value), state, new)
