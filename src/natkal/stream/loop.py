"""The compiled loop: rows in, what was expected of each and what became of the learner out.

One row after another through the same machine code, whatever the blocks: a run cut anywhere and continued gives
the same numbers to the last bit.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine import Learner
from natkal.engine.state import LearnerState, Prediction
from natkal.stream.laws import Law, split_naturals
from natkal.stream.learners import Choice, make_learner
from natkal.stream.scaling import Running, observe, standardise
from natkal.typing import Array, Float, Params

BLOCK = 4096


class StreamState(NamedTuple):
    """Everything a stream changes on the device: the scales of features and targets, and the learner."""

    features: Running
    targets: Running
    learner: LearnerState


class Outcomes(NamedTuple):
    """Row by row, target by target: the prediction in the user's units, log p of what came (NaN if nothing did)."""

    summary: np.ndarray
    log_prob: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Loop:
    """Test, then train, over rows of `width` numbers of which the first `scaled` are standardised."""

    learner: Learner
    laws: tuple[Law, ...]
    width: int
    scaled: int

    def init(self, params: Params, seed: int) -> StreamState:
        """Nothing seen."""
        return StreamState(
            features=Running.start(self.scaled),
            targets=Running.start(len(self.laws)),
            learner=self.learner.init(params, jax.random.key(seed)),
        )

    def run(
        self, state: Any, inputs: np.ndarray, targets: np.ndarray, learn: np.ndarray | None, slots: np.ndarray | None
    ) -> tuple[Any, "Pending"]:
        """All rows in order. `learn`, where given, holds what to learn at each row instead of the row itself: delayed
        inputs and targets side by side. `slots` says which model each row belongs to, where there are many.
        """
        pieces = []
        for first in range(0, len(inputs), BLOCK):
            part = slice(first, first + BLOCK)
            count = len(inputs[part])
            state, outcomes = self._block(
                state,
                _padded(inputs[part]),
                _padded(targets[part]),
                None if learn is None else _padded(learn[part]),
                None if slots is None else _padded(slots[part].astype(np.int32)),
                count,
            )
            pieces.append((outcomes, count))
        return state, Pending(pieces, self)

    def predict(self, state: Any, inputs: np.ndarray, slots: np.ndarray | None) -> np.ndarray:
        """The prediction for each row in the user's units, learning nothing."""
        pieces = [np.zeros((0, self.summary_size))]
        for first in range(0, len(inputs), BLOCK):
            part = slice(first, first + BLOCK)
            count = len(inputs[part])
            which = None if slots is None else _padded(slots[part].astype(np.int32))
            pieces.append(np.asarray(self._predictions(state, _padded(inputs[part]), which))[:count])
        return np.concatenate(pieces)

    @functools.cached_property
    def _predictions(self):
        @jax.jit
        def block(state: Any, inputs: Array, slots: Array | None) -> Array:
            unknown = jnp.full(len(self.laws), jnp.nan)

            def row(values: Array, slot: Array | None) -> Array:
                one = state if slot is None else jax.tree.map(lambda leaf: leaf[slot], state)
                prediction = self.learner.predict_unchecked(one.learner, self.scaled_inputs(one, values))
                return self._outcomes(one, prediction, unknown)[0]

            return jax.lax.map(lambda entry: row(*entry), (inputs, slots))

        return block

    @functools.cached_property
    def _block(self):
        return jax.jit(self._block_unjitted, donate_argnums=0)

    def _block_unjitted(
        self,
        state: Any,
        inputs: Float[Array, "b d"],
        targets: Float[Array, "b t"],
        learn: Float[Array, "b dt"] | None,
        slots: Array | None,
        count: Array,
    ) -> tuple[Any, tuple[Array, Array]]:
        summary = jnp.zeros((BLOCK, self.summary_size))
        log_prob = jnp.zeros((BLOCK, len(self.laws)))

        def body(row: Array, carried: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
            state, summary, log_prob = carried
            slot = None if slots is None else slots[row]
            one = state if slot is None else jax.tree.map(lambda leaf: leaf[slot], state)
            late = None if learn is None else learn[row]
            new, (expected, density) = self._row(one, inputs[row], targets[row], late)
            kept = new if slot is None else jax.tree.map(lambda leaf, value: leaf.at[slot].set(value), state, new)
            return kept, summary.at[row].set(expected), log_prob.at[row].set(density)

        final, *outcomes = jax.lax.fori_loop(0, count, body, (state, summary, log_prob))
        return final, tuple(outcomes)

    def _row(
        self, state: StreamState, inputs: Array, targets: Array, late: Array | None
    ) -> tuple[StreamState, tuple[Array, Array]]:
        """Predict this row; learn it, or what has arrived instead; then let its values into the scales."""
        if late is None:
            learner, info = self.learner.step_unchecked(
                state.learner, self.scaled_inputs(state, inputs), self._prepare(state, targets)
            )
            prediction = info.prediction
            features, scales = observe(state.features, inputs[: self.scaled]), self._observe(state.targets, targets)
        else:
            prediction = self.learner.predict_unchecked(state.learner, self.scaled_inputs(state, inputs))
            known = StreamState(
                features=observe(state.features, inputs[: self.scaled]), targets=state.targets, learner=state.learner
            )
            late_inputs, late_targets = late[: self.width], late[self.width :]
            learner, _ = self.learner.step_unchecked(
                state.learner, self.scaled_inputs(known, late_inputs), self._prepare(known, late_targets)
            )
            features, scales = known.features, self._observe(state.targets, late_targets)
        outcomes = self._outcomes(state, prediction, targets)
        return StreamState(features=features, targets=scales, learner=learner), outcomes

    def scaled_inputs(self, state: StreamState, inputs: Array) -> Array:
        """A row as the learner sees it: numbers standardised by earlier rows, 0 where missing."""
        rest = inputs[self.scaled :]
        scaled = standardise(state.features, inputs[: self.scaled])
        return jnp.concatenate([scaled, jnp.where(jnp.isnan(rest), 0.0, rest)])

    def _prepare(self, state: StreamState, targets: Array) -> Array:
        scales = [jax.tree.map(lambda leaf, i=i: leaf[i], state.targets) for i in range(len(self.laws))]
        values = [law.prepare(targets[i], scales[i]) for i, law in enumerate(self.laws)]
        return values[0] if len(values) == 1 else jnp.stack(values)

    def _observe(self, running: Running, targets: Array) -> Running:
        measured = [law.measure(y) for law, y in zip(self.laws, targets, strict=True)]
        return observe(running, jnp.stack(measured))

    def _outcomes(self, state: StreamState, prediction: Prediction, targets: Array) -> tuple[Array, Array]:
        assert prediction.total_cov is not None  # left out only by learners that sample their Fisher factors
        parts = split_naturals(self.laws, prediction.natural, prediction.total_cov)
        scales = [jax.tree.map(lambda leaf, i=i: leaf[i], state.targets) for i in range(len(self.laws))]
        outcomes = [
            law.outcome(natural, cov, targets[i], scales[i])
            for i, (law, (natural, cov)) in enumerate(zip(self.laws, parts, strict=True))
        ]
        summary = jnp.concatenate([outcome.summary for outcome in outcomes])
        return summary, jnp.stack([outcome.log_prob for outcome in outcomes])

    @property
    def summary_size(self) -> int:
        """How many numbers a prediction has, over all targets."""
        return sum(law.summary_size for law in self.laws)


@functools.lru_cache(maxsize=16)
def make_loop(choice: Choice, laws: tuple[Law, ...], width: int, scaled: int) -> tuple[Loop, Params]:
    """The loop of this learner and its first parameters; the same one, compiled once, for the same question."""
    learner, params = make_learner(choice, width, laws)
    return Loop(learner=learner, laws=laws, width=width, scaled=scaled), params


class Pending:
    """Outcomes that may still be in the making: the host goes on reading while the device learns."""

    def __init__(self, pieces: list[tuple[tuple[Array, Array], int]], loop: Loop):
        self._pieces = pieces
        self._loop = loop

    def wait(self) -> Outcomes:
        """The outcomes, once they are there."""
        if not self._pieces:
            return Outcomes(np.zeros((0, self._loop.summary_size)), np.zeros((0, len(self._loop.laws))))
        summaries = [np.asarray(outcomes[0])[:count] for outcomes, count in self._pieces]
        log_probs = [np.asarray(outcomes[1])[:count] for outcomes, count in self._pieces]
        return Outcomes(summary=np.concatenate(summaries), log_prob=np.concatenate(log_probs))


def _padded(rows: np.ndarray) -> np.ndarray:
    """Rows of one block, filled up to its length so that one compiled loop serves all."""
    if len(rows) == BLOCK:
        return rows
    full = np.zeros((BLOCK, *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full
