"""Labels that come after their rows: so many rows later (`--label-delay`), or under the row's id (`--id`)."""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natkal.runs.blocks import rows_of, wider
from natkal.storage.parts import F8, Stored, each, text, whole
from natkal.tables.encode.encoder import Encoded
from natkal.tables.engine.batch import TableBatch, interleaved, stacked
from natkal.tables.table import TableLearner

if TYPE_CHECKING:
    from natkal.runs.learning import Learning

MAX_WAITING_ROWS = 100_000
"""How many rows wait for a label that comes later under their id; the oldest give way."""


class Awaiting(OrderedDict[str, np.ndarray]):
    """What waits under an id: rows for their label, or labels for their row; `width` numbers each."""

    limit = MAX_WAITING_ROWS
    given_up = 0
    """How many gave way."""

    def __init__(self, width: Callable[[], int]):
        super().__init__()
        self._width = width

    def stored(self) -> Stored:
        """The ids, and all numbers; what waits since before a column came lacks it."""
        width = self._width()
        return Stored(list(self), {"": _table([wider(row[None], width)[0] for row in self.values()], width)})

    def restore(self, kept: Stored) -> None:
        """The inverse of `stored`."""
        names = each(text)(kept.fields)
        kept.check({"": ((len(set(names)), self._width()), F8)})
        self.update(zip(names, kept.arrays[""].copy(), strict=True))


class Delayed(deque[TableBatch]):
    """Rows whose label has not come yet, one in each batch."""

    def __init__(self, learner: TableLearner):
        super().__init__()
        self._learner = learner

    @property
    def _widths(self) -> list[int]:
        learner, targets = self._learner, len(self._learner.targets)
        return [len(learner.scaled), *(past.columns for past in learner.pasts), targets, targets, 1]

    def stored(self) -> Stored:
        """The slots, and each row as one row of numbers."""
        columns = self._widths[0]
        rows = [
            np.concatenate([wider(one.inputs, columns), *one.past, one.known, one.targets, one.weight[:, None]], axis=1)
            for one in self
        ]
        slots = [0 if one.slot is None else int(one.slot[0]) for one in self]
        return Stored(slots, {"": _table([row[0] for row in rows], sum(self._widths))})

    def restore(self, kept: Stored) -> None:
        """The inverse of `stored`."""
        slots = each(whole)(kept.fields)
        kept.check({"": ((len(slots), sum(self._widths)), F8)})
        edges = np.cumsum(self._widths)[:-1]
        for row, slot in zip(kept.arrays[""][:, None], slots, strict=True):
            inputs, *past, known, targets, weight = np.split(row, edges, axis=1)
            own = np.array([slot], np.int32) if self._learner.keyed else None
            self.append(TableBatch(inputs, tuple(past), known.astype(np.int32), targets, weight[:, 0], own))


def _table(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    return np.stack(rows) if rows else np.zeros((0, width))


class Draft:
    """What will wait once some rows are accepted; until then nothing has changed."""

    def __init__(self, waiting: Awaiting):
        self._waiting = waiting
        self._gone: set[str] = set()
        self._new: OrderedDict[str, np.ndarray] = OrderedDict()
        self._oldest = iter(waiting)
        self._given_up = 0

    def __contains__(self, name: str) -> bool:
        return name in self._new or (name in self._waiting and name not in self._gone)

    def take(self, name: str) -> np.ndarray | None:
        """What waits under this id, which waits no more; None where nothing does."""
        if name in self._new:
            return self._new.pop(name)
        if name not in self:
            return None
        self._gone.add(name)
        return self._waiting[name]

    def put(self, name: str, value: np.ndarray) -> None:
        """One more; where there are too many the oldest gives way."""
        self.take(name)
        self._new[name] = value
        if len(self._waiting) - len(self._gone) + len(self._new) > self._waiting.limit:
            oldest = next((one for one in self._oldest if one not in self._gone), None)
            self._new.popitem(last=False) if oldest is None else self._gone.add(oldest)
            self._given_up += 1

    def accept(self) -> None:
        """Make it so."""
        for name in self._gone:
            del self._waiting[name]
        self._waiting.update(self._new)
        self._waiting.given_up += self._given_up


def no_name(cell: Any) -> bool:
    """Whether this cell of the column of ids names no row."""
    return cell is None or cell != cell or cell == ""


def with_ids(session: "Learning", encoded: Encoded, ids: Sequence[str], labels: bool, drafts: list[Draft]) -> Encoded:
    """Rows without a label wait under their id; a label that comes later gets its row's features back.

    `labels`: these are labels of another topic; one that finds no row waits for it, and its row is left out here.
    """
    rows, early = drafts
    inputs, targets, past = encoded.inputs.copy(), encoded.targets.copy(), session.learner.past_columns
    known = np.ones(len(inputs), bool)
    waited: list[np.ndarray | None] = [None] * len(inputs)
    for row, name in enumerate(ids):
        if labels and name not in rows:
            known[row] = False
            if name:
                early.put(name, targets[row])
        elif not name:
            continue
        elif not labels and (label := early.take(name)) is not None:
            targets[row] = label
        elif np.isnan(targets[row]).all():
            kept = waited[row] = np.concatenate([np.full(past, np.nan), inputs[row]])
            rows.put(name, kept)
        elif (found := rows.take(name)) is not None:
            waited[row] = found
            inputs[row] = wider(found[None, past:], inputs.shape[1])[0]
    whole = encoded._replace(inputs=inputs, targets=targets, waited=waited)
    return whole if known.all() else rows_of(whole, np.flatnonzero(known))._replace(rejects=encoded.rejects)


def keep_past(session: "Learning", rows: TableBatch, encoded: Encoded) -> None:
    """Each row that waits keeps the past it is predicted with, and is learned with it when its label comes."""
    widths = np.cumsum([0, *(past.columns for past in session.learner.pasts)])
    unlabelled = np.atleast_1d(np.isnan(encoded.targets).all(axis=1))
    for row, kept in enumerate(encoded.waited):
        for past, first, last in zip(rows.past, widths[:-1], widths[1:], strict=True):
            if kept is not None and unlabelled[row]:
                kept[first:last] = past[row]
            elif kept is not None:
                past[row] = kept[first:last]


def delayed(session: "Learning", encoded: Encoded) -> TableBatch:
    """The rows, each with the past that is known by then, and with each of them the row `label_delay` before it.

    That row is of whatever key; it counts for nothing as long as there is none.
    """
    keyed = session.schema.key is not None
    rows, arrived = [], []
    for at in range(len(encoded.inputs)):
        keys = encoded.keys[at : at + 1]
        one = session.learner.rows(
            encoded.inputs[at : at + 1], encoded.targets[at : at + 1], keys=keys, tell_past=False
        )
        if keyed:
            one = one._replace(slot=np.array([session.learner.slot(keys[0])], np.int32))
        rows.append(one)
        session.queue.append(one)
        if len(session.queue) > session.settings.label_delay:
            late = session.queue.popleft()
            key = list(session.learner.keys)[int(late.slot[0])] if late.slot is not None else ""
            for position, value in enumerate(late.targets[0]):
                if value == value:
                    session.learner.know(position, float(value), key)
        else:
            late = one.unlabelled()._replace(weight=np.zeros(1))
        arrived.append(late)
    return interleaved(stacked(rows), stacked(arrived))
