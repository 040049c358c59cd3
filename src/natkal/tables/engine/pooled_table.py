"""A model for each key, all of them from one population: a key with few rows borrows from the others."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from natkal.compiling.float64 import float64
from natkal.settings.options import Options, past_lags
from natkal.tables.engine.batch import Pending, TableBatch, one_after_the_other
from natkal.tables.engine.pool import check_poolable, pooled
from natkal.tables.engine.slots import slots_for, spread
from natkal.tables.learner.choose import Inputs
from natkal.tables.learner.past import Past
from natkal.tables.table import TableLearner

FIRST_POOLING, GROWTH = 64, 1.3
"""The population is learned again after so many rows, and whenever there are so many times as many."""


class PooledTable(TableLearner):
    """A `TableLearner` with keys whose models share scales and a prior that is learned from all of them.

    `know_first_rows` fixes the scales: parameters of different keys are compared, so they must be in the same units.
    The last slot of the state is the population; it is never a key's.
    """

    learned_rows = 0

    @float64
    def know_first_rows(self, numbers: np.ndarray, targets: np.ndarray, keys: Sequence[str]) -> None:
        """Scale inputs and targets of every key by these rows, the first of the stream, before any is learned.

        A column without spread in these rows keeps a running scale for each key.
        """
        for learner in self.loop.learners:
            check_poolable(learner)
        pasts, known = self.pasts, list(self.known)
        lags = past_lags(self.options.past)
        self.pasts = [Past(target.classes, lags) for target in self.targets]
        rows = self.rows(numbers, targets, keys=keys)
        self.pasts, self.known = pasts, known
        self.state = tuple(
            spread(
                learner.units.with_scales(
                    own, Inputs(_varying(part.numbers), None), self._learners_values(position, rows)
                ),
                self.slots,
            )
            for position, (learner, own, part) in enumerate(
                zip(self.loop.learners, self.loop.start(), self.loop.arranged(rows), strict=True)
            )
        )

    def _run(self, batch: TableBatch) -> Pending:
        """The rows, cut where the population is learned again: after rows whose number alone decides."""
        parts, first, count = [], 0, len(batch.weight)
        while first < count:
            last = min(count, first + next_pooling(self.learned_rows) - self.learned_rows)
            parts.append(super()._run(batch.part(slice(first, last))))
            self.learned_rows += last - first
            first = last
            if next_pooling(self.learned_rows - 1) == self.learned_rows:
                self.pool()
        return Pending(lambda: one_after_the_other([part.wait() for part in parts])) if parts else super()._run(batch)

    @float64
    def pool(self) -> None:
        """Learn the population from what all keys know by now."""
        self.state = tuple(
            pooled(learner, own, _beginning(own, start))
            for learner, own, start in zip(self.loop.learners, self.state, self.loop.start(), strict=True)
        )

    @property
    def slots(self) -> int:
        """How many slots a checkpoint has: the keys', and at least one that is the population."""
        return slots_for(len(self.keys) + 1)

    def make_room(self, needed: int) -> None:
        """Twice the slots, as often as needed, with one to spare."""
        self._grow(slots_for(max(needed, len(self.keys) + 1)))

    def new_model(self) -> Any:
        """The population's state, with a leading axis."""
        return jax.tree.map(lambda leaf: leaf[-1:], self.held)

    def header(self) -> dict[str, Any]:
        """All that is not numbers on the device."""
        return {**super().header(), "learned_rows": self.learned_rows}

    @classmethod
    def from_header(cls, options: Options, header: Mapping[str, Any], *, keyed: bool, limits: bool) -> Self:
        """A learner like the one that wrote the header, at its start."""
        made = super().from_header(options, header, keyed=keyed, limits=limits)
        made.learned_rows = int(header["learned_rows"])
        return made


def next_pooling(rows: int) -> int:
    """The first number of rows above this one after which the population is learned again."""
    at = FIRST_POOLING
    while at <= rows:
        at = int(at * GROWTH) + 1
    return at


def _beginning(states: Any, start: Any) -> Any:
    """One model before any row, in the scales of the population's slot."""
    return jax.tree.map(lambda leaf: leaf[-1], states._replace(bank=()))._replace(bank=start.bank)


def _varying(numbers: np.ndarray) -> np.ndarray:
    """The columns with some spread; the others as if they had never been seen."""
    present = np.isfinite(numbers)
    lowest = np.where(present, numbers, np.inf).min(axis=0, initial=np.inf)
    highest = np.where(present, numbers, -np.inf).max(axis=0, initial=-np.inf)
    return np.where((highest > lowest)[None], numbers, np.nan)
