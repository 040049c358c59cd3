"""The compiled loop: rows in, what was expected of each and what became of the learner out.

One row after another through the same machine code, whatever the blocks: a run cut anywhere and continued gives
the same numbers to the last bit.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.app.session.runtime import jit_small
from natkal.engine import Learner
from natkal.learners import Bank
from natkal.tabular.expectations import expectations, member_names, weights_and_memory
from natkal.tabular.laws import Law
from natkal.tabular.learners import make_learner
from natkal.tabular.scaling import Running, observe, standardise
from natkal.tabular.settings import Choice
from natkal.typing import Array, Params

BLOCK = 4096


class StreamState(NamedTuple):
    """Everything a stream changes on the device: the scales of features and targets, and the learner."""

    features: Running
    targets: Running
    learner: Any


class Feed(NamedTuple):
    """What goes through the loop, one entry per row; None where it does not apply.

    `slots`: which model a row belongs to, where there are many. `resets`: a new sequence starts with the row. `late`:
    inputs and targets, side by side, of the row whose label has arrived by now and is learned instead of the row
    itself (NaN where none has), and `late_slots` whose model that is.
    """

    inputs: np.ndarray
    targets: np.ndarray
    slots: np.ndarray | None = None
    resets: np.ndarray | None = None
    late: np.ndarray | None = None
    late_slots: np.ndarray | None = None


class Outcomes(NamedTuple):
    """Row by row: the prediction in the user's units; for each target log p of what came (NaN if nothing did); and for
    each filter of a bank its weight, with the memory they have together.
    """

    summary: Any
    log_prob: Any
    weights: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Loop:
    """Test, then train, over rows of `width` numbers; `scaled` says of each whether it is standardised."""

    learner: Learner | Bank
    laws: tuple[Law, ...]
    width: int
    scaled: tuple[bool, ...]

    def init(self, params: Params, seed: int) -> StreamState:
        """Nothing seen."""
        return StreamState(
            features=Running.start(self.width),
            targets=Running.start(len(self.laws)),
            learner=self.learner.init(params, jax.random.key(seed)),
        )

    def run(self, state: Any, feed: Feed) -> tuple[Any, "Pending"]:
        """All rows in order: each predicted, then learned."""
        pieces = []
        for part in _parts(feed):
            state, outcomes = self._block(state, jax.tree.map(_padded, part), len(part.inputs))
            pieces.append((outcomes, len(part.inputs)))
        return state, Pending(pieces)

    def predict(self, state: StreamState, feed: Feed) -> tuple[StreamState, np.ndarray]:
        """The prediction for each row in the user's units, learning nothing; only a model's memory moves on."""
        pieces = [np.zeros((0, self.summary_size))]
        for part in _parts(feed):
            learner, summary = self._predictions(state, jax.tree.map(_padded, part), len(part.inputs))
            state = StreamState(features=state.features, targets=state.targets, learner=learner)
            pieces.append(np.asarray(summary)[: len(part.inputs)])
        return state, np.concatenate(pieces)

    @functools.cached_property
    def _predictions(self):
        def block(state: StreamState, feed: Feed, count: Array) -> tuple[Any, Array]:
            """Steps whose target is missing: they predict, and move a model's memory if it has one."""
            unknown = jnp.full(len(self.laws), jnp.nan)

            def body(row: Array, carried: tuple[Any, Array]) -> tuple[Any, Array]:
                learners, summary = carried
                now: Feed = jax.tree.map(lambda leaf: leaf[row], feed)
                one, mine = _at((state, learners), now.slots)
                inputs = self.scaled_inputs(one, jnp.asarray(now.inputs))
                unlabelled = self._prepare(one, unknown)
                after, info = self.learner.step_unchecked(self._restarted(mine, now.resets), inputs, unlabelled)
                expected = self._outcomes(one, info.prediction, unknown)
                return _put(learners, now.slots, after), summary.at[row].set(expected.summary)

            return jax.lax.fori_loop(0, count, body, (state.learner, jnp.zeros((BLOCK, self.summary_size))))

        return jit_small(block)

    @functools.cached_property
    def _block(self):
        return jit_small(self._block_unjitted, donate_argnums=0)

    def _block_unjitted(self, state: Any, feed: Feed, count: Array) -> tuple[Any, Outcomes]:
        sizes = (self.summary_size, len(self.laws), len(self.members))
        nothing = Outcomes(*(jnp.zeros((BLOCK, size)) for size in sizes))

        def body(row: Array, carried: tuple[Any, Outcomes]) -> tuple[Any, Outcomes]:
            state, outcomes = carried
            now: Feed = jax.tree.map(lambda leaf: leaf[row], feed)
            new, outcome = self._row(_at(state, now.slots), now)
            known = _put(state, now.slots, new)
            if now.late is not None:
                known = _put(known, now.late_slots, self._learn_late(_at(known, now.late_slots), jnp.asarray(now.late)))
            return known, jax.tree.map(lambda all_rows, value: all_rows.at[row].set(value), outcomes, outcome)

        return jax.lax.fori_loop(0, count, body, (state, nothing))

    def _row(self, state: StreamState, now: Feed) -> tuple[StreamState, Outcomes]:
        """Predict this row, and learn it unless its label comes later; then let its values into the scales."""
        inputs, targets = jnp.asarray(now.inputs), jnp.asarray(now.targets)
        features = observe(state.features, inputs)
        if now.late is not None:
            prediction = self.learner.predict_unchecked(state.learner, self.scaled_inputs(state, inputs))
            known = StreamState(features=features, targets=state.targets, learner=state.learner)
            return known, self._outcomes(state, prediction, targets)
        before = self._restarted(state.learner, now.resets)
        learner, info = self.learner.step_unchecked(
            before, self.scaled_inputs(state, inputs), self._prepare(state, targets)
        )
        known = StreamState(features=features, targets=self._observe(state.targets, targets), learner=learner)
        return known, self._outcomes(state, info.prediction, targets, info.log_prob)

    def _learn_late(self, state: StreamState, late: Array) -> StreamState:
        """Learn a row whose label has come, by the scales as they are now; nothing where none has."""
        inputs, targets = late[: self.width], late[self.width :]
        learner, _ = self.learner.step_unchecked(
            state.learner, self.scaled_inputs(state, inputs), self._prepare(state, targets)
        )
        return StreamState(features=state.features, targets=self._observe(state.targets, targets), learner=learner)

    def _restarted(self, learner: Any, reset: Any) -> Any:
        """The learner at the start of a new sequence, where one starts."""
        if reset is None:
            return learner
        return jax.lax.cond(reset, self.learner.restart, lambda state: state, learner)

    def scaled_inputs(self, state: StreamState, inputs: Array) -> Array:
        """A row as the learner sees it: numbers standardised by earlier rows, 0 where missing."""
        present = jnp.where(jnp.isnan(inputs), 0.0, inputs)
        return jnp.where(jnp.array(self.scaled), standardise(state.features, inputs), present)

    def _scales(self, state: StreamState) -> list[Running]:
        return [jax.tree.map(lambda leaf, i=i: leaf[i], state.targets) for i in range(len(self.laws))]

    def _prepared(self, state: StreamState, targets: Array) -> list[Array]:
        return [law.prepare(y, scale) for law, y, scale in zip(self.laws, targets, self._scales(state), strict=True)]

    def _prepare(self, state: StreamState, targets: Array) -> Array:
        values = self._prepared(state, targets)
        return values[0] if len(values) == 1 else jnp.stack(values)

    def _observe(self, running: Running, targets: Array) -> Running:
        measured = [law.measure(y) for law, y in zip(self.laws, targets, strict=True)]
        return observe(running, jnp.stack(measured))

    def _outcomes(self, state: StreamState, prediction: Any, targets: Array, log_prob: Array | None = None) -> Outcomes:
        expected = expectations(self.learner, self.laws, prediction, self._prepared(state, targets), log_prob)
        outcomes = [
            law.outcome(*one, y, scale)
            for law, one, y, scale in zip(self.laws, expected, targets, self._scales(state), strict=True)
        ]
        return Outcomes(
            summary=jnp.concatenate([outcome.summary for outcome in outcomes]),
            log_prob=jnp.stack([outcome.log_prob for outcome in outcomes]),
            weights=weights_and_memory(self.learner, state.learner, prediction),
        )

    @property
    def members(self) -> list[str]:
        """What is told of the filters of a bank at each row, number by number."""
        return member_names(self.learner)

    @property
    def summary_size(self) -> int:
        """How many numbers a prediction has, over all targets."""
        return sum(law.summary_size for law in self.laws)


@functools.lru_cache(maxsize=16)
def make_loop(choice: Choice, laws: tuple[Law, ...], width: int, scaled: tuple[bool, ...]) -> tuple[Loop, Params]:
    """The loop of this learner and its first parameters; the same one, compiled once, for the same question."""
    learner, params = make_learner(choice, width, laws)
    return Loop(learner=learner, laws=laws, width=width, scaled=scaled), params


class Pending:
    """Outcomes that may still be in the making: the host goes on reading while the device learns."""

    def __init__(self, pieces: list[tuple[Outcomes, int]]):
        self._pieces = pieces

    def wait(self) -> Outcomes:
        """The outcomes, once they are there."""
        parts = [jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n], outcomes) for outcomes, count in self._pieces]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _parts(feed: Feed) -> Iterator[Feed]:
    """At most `BLOCK` rows at a time."""
    for first in range(0, len(feed.inputs), BLOCK):
        yield jax.tree.map(lambda leaf, first=first: leaf[first : first + BLOCK], feed)


def _at(state: Any, slot: Any) -> Any:
    """The state of one model of many, or the only one."""
    return state if slot is None else jax.tree.map(lambda leaf: leaf[slot], state)


def _put(state: Any, slot: Any, new: Any) -> Any:
    """`state` with that model's replaced."""
    return new if slot is None else jax.tree.map(lambda leaf, value: leaf.at[slot].set(value), state, new)


def _padded(rows: np.ndarray) -> np.ndarray:
    """Rows of one block, filled up to its length so that one compiled loop serves all."""
    if len(rows) == BLOCK:
        return rows
    full = np.zeros((BLOCK, *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full
