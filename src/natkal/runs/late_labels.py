"""Labels that come after their rows: so many rows later (`--label-delay`), or under the row's id (`--id`)."""

from typing import TYPE_CHECKING

import numpy as np

from natkal.runs.blocks import rows_of, wider
from natkal.tables.encode.encoder import Encoded
from natkal.tables.engine.batch import TableBatch, interleaved, stacked
from natkal.tables.schema.rows import Rows

if TYPE_CHECKING:
    from natkal.runs.session import Session

MAX_HELD_ROWS = 100_000
"""How many rows wait for a label that comes later under their id; the oldest give way."""


def delayed(session: "Session", encoded: Encoded) -> TableBatch:
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


def match_ids(session: "Session", rows: Rows, encoded: Encoded) -> Encoded:
    """Hold rows without a label under their id; give a label that comes later its row's features back."""
    assert session.settings.id is not None
    lines = {int(line): row for row, line in enumerate(rows.lines)}
    column = rows.columns.get(session.settings.id)
    inputs, targets, past = encoded.inputs.copy(), encoded.targets.copy(), session.learner.past_columns
    known = np.ones(len(inputs), bool)
    for row, line in enumerate(encoded.lines):
        name = "" if column is None else str(column[lines[int(line)]])
        if rows.labels and name not in session.held:
            known[row] = False
            session.early[name] = targets[row]
            if len(session.early) > MAX_HELD_ROWS:
                session.early.popitem(last=False)
        elif not rows.labels and name in session.early:
            targets[row] = session.early.pop(name)
        elif np.isnan(targets[row]).all():
            session.held[name] = np.concatenate([np.full(past, np.nan), inputs[row]])
            if len(session.held) > MAX_HELD_ROWS:
                session.held.popitem(last=False)
        elif name in session.held:
            inputs[row] = wider(session.held.pop(name)[None, past:], inputs.shape[1])[0]
    whole = encoded._replace(inputs=inputs, targets=targets, rejects=[])
    session.counts.skipped += int((~known).sum())
    return whole if known.all() else rows_of(whole, np.flatnonzero(known))
