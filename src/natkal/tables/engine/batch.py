"""Rows of a table as the engine takes them, and what it predicts for them: NumPy only, one form for every front end."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np


class TableBatch(NamedTuple):
    """Some rows, an entry for each; NaN is missing. A field that does not apply is None.

    `past` has the inputs made of earlier targets, an array for each target; `known` says how many classes of each
    target are known. `slot`: which model a row belongs to, where there are many. `reset`: a new sequence starts with
    the row. `ask`: the row is predicted and leaves no trace. `late`: the row is learned without an answer, since it was
    predicted when it came.
    """

    inputs: np.ndarray
    past: tuple[np.ndarray, ...]
    known: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    slot: np.ndarray | None = None
    reset: np.ndarray | None = None
    ask: np.ndarray | None = None
    late: np.ndarray | None = None

    def part(self, rows: Any) -> Self:
        """Some of the rows."""
        chosen = [None if field is None else field[rows] for field in (self.slot, self.reset, self.ask, self.late)]
        own = (self.inputs[rows], tuple(past[rows] for past in self.past))
        return type(self)(*own, self.known[rows], self.targets[rows], self.weight[rows], *chosen)

    def unlabelled(self) -> Self:
        """The same rows without their targets."""
        return self._replace(targets=np.full_like(self.targets, np.nan))


class TargetPrediction(NamedTuple):
    """Predictions of one target in the user's units and how they fared, all before learning from the rows.

    `value` is the value to bet on (NaN for classes) and `spread` its standard deviation; `low` and `high` are the
    limits of the central interval (NaN where not asked for); `probabilities` those of the classes (none for numbers).
    `log_prob` is that of what came, `rank` is P(Y <= y), both NaN where nothing came.
    """

    value: Any
    spread: Any
    low: Any
    high: Any
    probabilities: Any
    log_prob: Any
    rank: Any


class Predictions(NamedTuple):
    """Predictions of every target; of the first one the weight of each member and how many rows count in it."""

    targets: tuple[TargetPrediction, ...]
    weights: Any
    effective_rows: Any

    def part(self, rows: Any) -> Self:
        """Some of the rows."""
        targets = tuple(TargetPrediction(*(np.asarray(leaf)[rows] for leaf in target)) for target in self.targets)
        return type(self)(targets, np.asarray(self.weights)[rows], np.asarray(self.effective_rows)[rows])


class Pending:
    """Predictions that may still be in the making: the host goes on reading while the device learns."""

    def __init__(self, finish: Callable[[], Predictions]):
        self._finish = finish

    def wait(self) -> Predictions:
        """The predictions, once they are there, as NumPy arrays."""
        return self._finish()


def stacked(batches: Sequence[TableBatch]) -> TableBatch:
    """Batches as one; inputs that a row was before its time for are missing in it."""
    inputs, pasts, *others = zip(*batches, strict=True)
    past = tuple(_wide(own) for own in zip(*pasts, strict=True))
    return TableBatch(_wide(inputs), past, *(_joined(field) for field in others))


def interleaved(rows: TableBatch, late: TableBatch) -> TableBatch:
    """Each row, which is only asked for, and then the row whose label has come by then."""
    count = len(rows.weight)
    order = np.arange(2 * count).reshape(2, count).T.ravel()
    asked = np.arange(2 * count) % 2 == 0
    return stacked([rows, late]).part(order)._replace(ask=asked, late=~asked)


def one_after_the_other(parts: Sequence[Predictions]) -> Predictions:
    """The predictions of rows that were learned in several parts."""
    if len(parts) == 1:
        return parts[0]
    targets = tuple(
        TargetPrediction(*(np.concatenate(leaves) for leaves in zip(*own, strict=True)))
        for own in zip(*(part.targets for part in parts), strict=True)
    )
    weights = np.concatenate([part.weights for part in parts])
    return Predictions(targets, weights, np.concatenate([part.effective_rows for part in parts]))


def side_by_side(parts: Sequence[Predictions]) -> Predictions:
    """The predictions of several targets."""
    return parts[0]._replace(targets=tuple(target for part in parts for target in part.targets))


def _wide(parts: Sequence[np.ndarray]) -> np.ndarray:
    widest = max(part.shape[1] for part in parts)
    filled = [np.pad(part, ((0, 0), (0, widest - part.shape[1])), constant_values=np.nan) for part in parts]
    return np.concatenate(filled)


def _joined(parts: Sequence[np.ndarray | None]) -> Any:
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if len(given) == len(parts) else None
