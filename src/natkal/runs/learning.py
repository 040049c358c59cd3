"""What a run does with rows: prepared without changing anything, accepted without failing, then learned."""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from natkal.runs.blocks import by_classes
from natkal.runs.late import Awaiting, Delayed, Draft, delayed, keep_past, with_ids
from natkal.runs.rejects import count_reasons
from natkal.settings.settings import Counts, Settings
from natkal.storage.parts import Field, StoredPart, StoredParts, by_name, text, whole
from natkal.tables.encode.encoder import Encoded, Encoder
from natkal.tables.engine.batch import Pending, Predictions
from natkal.tables.schema.infer import Schema, Target
from natkal.tables.schema.rows import Rows
from natkal.tables.table import TableLearner


class Prepared(NamedTuple):
    """Some rows that can be used, what becomes of them, and what will change once they are accepted."""

    encoded: Encoded
    counts: Counts
    sequences: Mapping[str, str]
    drafts: Sequence[Draft]


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows that are being learned, with the classes known then."""

    pending: Pending
    encoded: Encoded
    targets: tuple[Target, ...]

    @functools.cached_property
    def told(self) -> Predictions:
        """What was told of them; the first time it is waited for."""
        return self.pending.wait()


class Learning(StoredParts):
    """A table that is being learned, and what became of its rows. A subclass reads, writes and saves."""

    def __init__(self, settings: Settings, encoder: Encoder, learner: TableLearner):
        self.settings = settings
        self.encoder = encoder
        self.learner = learner
        self.engine: Any = learner
        """What learns: the learner, or its live table."""
        self.counts = Counts()
        self.reasons: dict[str, int] = {}
        self.sequences: dict[str, str] = {}
        """The sequence that each key's last row belonged to (under "" where there are no keys)."""
        self.held = Awaiting(lambda: learner.past_columns + encoder.width)
        """Rows that wait for their label under their id: the past targets of each (NaN in a file's run), its inputs."""
        self.early = Awaiting(lambda: len(encoder.schema.targets))
        """Labels of a label topic that wait for their row: the targets by id."""
        self.queue = Delayed(learner)
        """Rows whose label has not come yet, with the slot of their model."""
        self.keeps_past = False
        """Whether a row whose label comes late under its id is learned with the past it was predicted with."""

    @property
    def schema(self) -> Schema:
        """What each column is, with the features and classes that came later."""
        return self.encoder.schema

    def stored_parts(self) -> dict[str, StoredPart]:
        """What survives a restart, in the order of restoring; a new field is a line here, or in the class it is in."""
        return {
            "learner": self.learner,
            "counts": Field(self, "counts", lambda value: Counts(**by_name(whole)(value)), dataclasses.asdict),
            "reasons": Field(self, "reasons", by_name(whole)),
            "sequences": Field(self, "sequences", by_name(text)),
            "held": self.held,
            "early": self.early,
            "queue": self.queue,
        }

    def settle_all(self) -> None:
        """Wait for all that is being learned."""

    def prepare(self, rows: Rows, ids: Sequence[str] = (), labels: Collection[int] = ()) -> Prepared:
        """The rows as numbers, and all that will change with them; nothing changes yet.

        `ids`: of each row, empty where it has none. `labels`: rows whose features wait under their id.
        """
        drafts = [Draft(self.held), Draft(self.early)] if ids else []
        encoded = self.encoder.encode(rows, labels=labels)
        if ids:
            line = {int(line): name for line, name in zip(rows.lines, ids, strict=True)}
            own = [line[int(one)] for one in encoded.lines]
            encoded = with_ids(self, encoded, own, rows.labels, drafts)
        return self.prepared(encoded, rows.read, drafts)

    def prepared(self, encoded: Encoded, read: int, drafts: Sequence[Draft] = ()) -> Prepared:
        """Rows that were encoded, and what will become of the `read` ones of which they are."""
        learned = int(np.count_nonzero(~np.isnan(encoded.targets).all(axis=1)))
        rejected = len(encoded.rejects)
        counts = Counts(read, learned, rejected, read - learned - rejected)
        resets, sequences = self.resets(encoded)
        return Prepared(encoded._replace(resets=resets), counts, sequences, drafts)

    def accept(self, prepared: Prepared) -> None:
        """Move all that is known before anything is learned; the only place that counts. It cannot fail."""
        self.encoder.accept(prepared.encoded.additions)
        self.counts += prepared.counts
        count_reasons(self.reasons, prepared.encoded.rejects)
        self.sequences |= prepared.sequences
        for draft in prepared.drafts:
            draft.accept()
        for key in prepared.encoded.keys:
            self.learner.keys.setdefault(key, len(self.learner.keys))

    def learn(self, encoded: Encoded, targets: tuple[Target, ...] | None = None) -> Iterator[Block]:
        """Predict and learn rows that were accepted: all that the device does. `targets`: as they were known then."""
        for part in by_classes(encoded, self.learner, self._add_classes):
            yield Block(self._learned(part), part, targets or self.schema.targets)

    def _add_classes(self, position: int, count: int) -> None:
        self.settle_all()
        self.engine.add_classes(position, count)

    def _learned(self, encoded: Encoded) -> Pending:
        if self.settings.label_delay:
            return self.engine.learn(delayed(self, encoded))
        rows = self.learner.rows(encoded.inputs, encoded.targets, keys=encoded.keys)
        if self.keeps_past:
            keep_past(self, rows, encoded)
        return self.engine.learn(rows, keys=encoded.keys, resets=encoded.resets)

    def resets(self, encoded: Encoded) -> tuple[np.ndarray | None, dict[str, str]]:
        """Where new sequences start (None where there are none), and the last sequence of each key of these rows."""
        if self.schema.sequence is None:
            return None, {}
        resets, last = np.zeros(len(encoded.inputs), bool), {}
        keys = encoded.keys or [""] * len(resets)
        for row, (key, sequence) in enumerate(zip(keys, encoded.sequences, strict=True)):
            resets[row] = last.get(key, self.sequences.get(key, sequence)) != sequence
            last[key] = sequence
        return resets, last
