"""A group of requests: each prepared and accepted by itself, all learned together, each answered. Writer only."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.runs.answers import as_rows, prediction_columns
from natkal.runs.blocks import joined
from natkal.runs.learning import Block, Prepared
from natkal.runs.session import Session
from natkal.serve.requests import LEARN, PREDICT, Request, check_names
from natkal.serve.rows import Refused, read_id
from natkal.settings.serve import Limits
from natkal.tables.encode.encoder import Encoded
from natkal.tables.engine.live_table import LiveTable
from natkal.tables.schema.infer import Target
from natkal.tables.schema.rows import Position, Rows

NOWHERE = Position(0, 0, 0)


class Columns:
    """Which keys a row may have: features, targets, the id."""

    def __init__(self, session: Session):
        schema = session.schema
        self.session = session
        self.targets = [target.name for target in schema.targets]
        self.features = {feature.name for feature in schema.features}
        self.known = self.features | set(self.targets)
        self.known |= {name for name in (schema.key, schema.sequence) if name is not None}
        self.id = session.settings.id or ("_id" if "id" in self.known else "id")
        self.allowed = self.known | set(schema.ignored) | {self.id}
        self.plain_width = len(schema.features) + len(self.targets)

    def encode(self, rows: list[dict[str, Any]]) -> Encoded:
        """The numbers of rows that are only asked about; the first row that cannot be used refuses all."""
        if all(len(row) == self.plain_width - len(self.targets) for row in rows):
            encoded = self.session.encoder.encode_plain(rows, targets=False)
            if encoded is not None:
                return encoded
        encoded = self._read(lambda table: self.session.encoder.encode(table, grow=False), rows, targets=False)
        _check_whole(encoded)
        return encoded

    def prepare(self, rows: list[dict[str, Any]], ids: Sequence[str], *, targets: bool) -> Prepared:
        """The rows of a request that changes something, refused whole where one of them cannot be used."""
        session, waiting = self.session, self.session.held
        labels = [at for at, one in enumerate(ids) if targets and one in waiting]
        for at in labels:
            rows[at] = {name: cell for name, cell in rows[at].items() if name not in self.features}
        for at, one in enumerate(ids):
            if targets and one and one not in waiting and not rows[at].keys() - set(self.targets):
                raise Refused(404, f"row {at + 1:,}: the id {one!r:.60} is not waiting for its label")
        prepared = self._read(lambda table: session.prepare(table, ids, labels), rows, targets=targets, labels=labels)
        _check_whole(prepared.encoded)
        empty = np.isnan(prepared.encoded.targets).all(axis=1)
        if targets and empty.any():
            raise Refused(422, f"row {int(np.argmax(empty)) + 1:,}: has no {' or '.join(self.targets)} to learn from")
        return prepared

    def _read(
        self, read: Callable[[Rows], Any], rows: list[dict[str, Any]], *, targets: bool, labels: Sequence[int] = ()
    ) -> Any:
        """The rows as a table, read by `read`; of `labels` the features may be missing."""
        check_names(rows, self.known, self.allowed, self.session.encoder.missing_columns, labels)
        names = dict.fromkeys(name for row in rows for name in row)
        columns: dict[str, Any] = {
            name: [row.get(name) for row in rows] for name in names if targets or name not in self.targets
        }
        try:
            return read(Rows("the request", columns, np.arange(1, len(rows) + 1), [], 0, NOWHERE))
        except StreamError as error:
            raise Refused(422, str(error)) from error


def _check_whole(encoded: Encoded) -> None:
    if encoded.rejects:
        raise Refused(422, f"row {encoded.rejects[0].line:,}: {encoded.rejects[0].reason}")


class Work:
    """What the writer does with a session. One thread calls it."""

    def __init__(self, session: Session, limits: Limits):
        if session.settings.label_delay:
            raise StreamError("--label-delay: a run with delayed labels cannot be served; labels come late by id")
        self.session = session
        self.limits = limits
        self.columns = Columns(session)
        self.table = session.engine = LiveTable(session.learner)
        session.keeps_past, session.held.limit = True, limits.ids

    def run(self, requests: list[Request], before_answers: Callable[[list[Request]], None]) -> list[Block]:
        """Learn the requests that can be used, in order. `before_answers` gets those, while they are being learned.

        Every request has an answer or a refusal afterwards. What blocks of rows told is returned, to be counted.
        """
        groups = self._all_plain(requests) or self._accepted(requests)
        blocks = [list(self.session.learn(joined(encoded), targets)) for targets, encoded, _ in groups]
        before_answers([request for *_, taken in groups for request in taken])
        for (*_, taken), own in zip(groups, blocks, strict=True):
            self._answer(taken, own)
        return [block for own in blocks for block in own]

    def _all_plain(self, requests: list[Request]) -> list["Group"]:
        """Requests of plain numbers without ids, all encoded at once; nothing where any is not like that."""
        rows = [row for request in requests for row in request.rows]
        width = self.columns.plain_width
        if any(request.kind == PREDICT for request in requests) or not all(len(row) == width for row in rows):
            return []
        encoded = self.session.encoder.encode_plain(rows, targets=True)
        if encoded is None:
            return []
        self.session.accept(self.session.prepared(encoded, len(rows)))
        return [(self.session.schema.targets, [encoded], requests)]

    def _accepted(self, requests: list[Request]) -> list["Group"]:
        """The requests that can be used, together where they know the same classes: no answer depends on the group."""
        groups: list[Group] = []
        for request in requests:
            try:
                prepared = self._prepare(request)
            except Refused as refused:
                request.refused = refused
                continue
            self.session.accept(prepared)
            targets = self.session.schema.targets
            if not groups or targets != groups[-1][0]:
                groups.append((targets, [], []))
            groups[-1][1].append(prepared.encoded)
            groups[-1][2].append(request)
        return groups

    def _prepare(self, request: Request) -> Prepared:
        """What a request would change; refused whole where a row cannot be used. Nothing changes."""
        name, rows = self.columns.id, request.rows
        if any(name in row for row in rows):
            if self.session.learner.options.has_memory:
                raise Refused(409, "ids: a model with memory must learn the rows in their order; use one without")
            request.ids = [read_id(row[name]) if name in row else "" for row in rows]
            given = [one for one in request.ids if one]
            if len(set(given)) < len(given):
                raise Refused(422, "the same id stands twice in one request")
            rows = [{key: value for key, value in row.items() if key != name} for row in rows]
        prepared = self.columns.prepare(rows, request.ids, targets=request.kind != PREDICT)
        known = self.session.learner.keys
        if sum(key not in known for key in set(prepared.encoded.keys)) > self.limits.keys - len(known):
            raise Refused(422, f"{len(known):,} keys are known; no more than {self.limits.keys:,} are taken")
        return prepared

    def _answer(self, requests: list[Request], blocks: list[Block]) -> None:
        """Answer requests whose rows, one after the other, are those of some blocks."""
        told = [(block.targets, block.told.targets) for block in blocks]  # waits, also where nobody asks
        wanted, level = any(request.kind != LEARN for request in requests), self.session.settings.level
        objects = [one for part in told for one in as_rows(prediction_columns(*part, level))] if wanted else []
        first = 0
        for request in requests:
            last = first + len(request.rows)
            for at, name in enumerate(request.ids if objects else (), first):
                if name:
                    objects[at]["id"] = name
            if request.kind == LEARN:
                request.answer = {"learned": last - first, "rows": self.session.counts.learned}
            elif request.single:
                request.answer = objects[first]
            else:
                request.answer = {"predictions": objects[first:last]}
            first = last


Group = tuple[tuple[Target, ...], list[Encoded], list[Request]]
"""The classes that are known, the rows of some requests, and these requests."""
