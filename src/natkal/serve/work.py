"""A group of requests: each checked, ids matched, all learned as one block, each answered. Writer thread only."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from natkal.errors import StreamError
from natkal.runs.blocks import by_classes, rows_of
from natkal.runs.session import Session
from natkal.serve import answers
from natkal.serve.requests import LEARN, PREDICT, Limits, Request, check_names
from natkal.serve.rows import Refused, read_id
from natkal.tables.encode.encoder import Encoded
from natkal.tables.engine.batch import Predictions
from natkal.tables.engine.live_table import LiveTable
from natkal.tables.schema.infer import Target
from natkal.tables.schema.rows import Position, Rows

NOWHERE = Position(0, 0, 0)


class Prepared(NamedTuple):
    """A request whose rows can be used: numbers, the id of each row (or none), and what was held under it."""

    request: Request
    encoded: Encoded
    ids: Sequence[str | None]
    held: dict[int, np.ndarray]


class Columns:
    """Which keys a row may have: features, targets, the id."""

    def __init__(self, session: Session):
        schema = session.schema
        self.session = session
        self.targets = [target.name for target in schema.targets]
        self.known = {feature.name for feature in schema.features} | set(self.targets)
        self.known |= {name for name in (schema.key, schema.sequence) if name is not None}
        self.sequence = schema.sequence
        self.id = session.settings.id or ("_id" if "id" in self.known else "id")
        self.allowed = self.known | set(schema.ignored) | {self.id}
        self.plain_width = len(schema.features) + len(self.targets)

    def encode(self, rows: list[dict[str, Any]], *, targets: bool, grow: bool) -> Encoded:
        """The numbers of these rows; the first row that cannot be used refuses all."""
        width = self.plain_width if targets else self.plain_width - len(self.targets)
        encoder = self.session.encoder
        if all(len(row) == width for row in rows):
            encoded = encoder.encode_plain(rows, targets=targets)
            if encoded is not None:
                return encoded
        check_names(rows, self.known, self.allowed, encoder.missing_columns)
        names = dict.fromkeys(name for row in rows for name in row)
        if not targets:
            names = {name: None for name in names if name not in self.targets}
        table = _table(rows, list(names))
        mark = encoder.mark()
        try:
            encoded = encoder.encode(table, grow=grow)
        except StreamError as error:
            encoder.undo(mark)
            raise Refused(422, str(error)) from error
        reason = f"row {encoded.rejects[0].line:,}: {encoded.rejects[0].reason}" if encoded.rejects else ""
        if not reason and targets:
            empty = np.isnan(encoded.targets).all(axis=1)
            if empty.any():
                reason = f"row {int(np.argmax(empty)) + 1:,}: has no {' or '.join(self.targets)} to learn from"
        if reason:
            encoder.undo(mark)
            raise Refused(422, reason)
        return encoded

    def encode_targets(self, rows: list[dict[str, Any]], numbers: list[int]) -> np.ndarray:
        """The targets of rows whose features were held; `numbers` are their places in the request."""
        check_names(rows, self.known, self.allowed)
        mark = self.session.encoder.mark()
        values, reasons = self.session.encoder.encode_targets(_table(rows, self.targets))
        for row in np.flatnonzero(np.isnan(values).all(axis=1)).tolist():
            reasons.setdefault(row, f"has no {' or '.join(self.targets)} to learn from")
        if reasons:
            self.session.encoder.undo(mark)
            row = min(reasons)
            raise Refused(422, f"row {numbers[row] + 1:,}: {reasons[row]}")
        return values


class Work:
    """What the writer does with a session. One thread calls it."""

    def __init__(self, session: Session, limits: Limits):
        if session.settings.label_delay:
            raise StreamError("--label-delay: a run with delayed labels cannot be served; labels come late by id")
        self.session = session
        self.limits = limits
        self.columns = Columns(session)
        self.table = LiveTable(session.learner)
        self.given_up = 0
        """Rows whose label did not come before too many others waited."""
        self.known_targets = session.schema.targets

    def run(self, requests: list[Request], before_answers: Callable[[list[Request]], None]) -> list["Block"]:
        """Learn the requests that can be used, in order. `before_answers` gets those, while they are being learned.

        Every request has an answer or a refusal afterwards. What blocks of rows told is returned, to be counted.
        """
        blocks: list[Block] = self._all_plain(requests)
        if blocks:
            before_answers(requests)
            for block in blocks:
                block.finish()
            return blocks
        waiting: list[Prepared] = []
        fresh: set[str] = set()
        for request in requests:
            try:
                if request.kind != PREDICT and fresh & {str(row.get(self.columns.id)) for row in request.rows}:
                    blocks += self._learn_prepared(waiting)
                    waiting, fresh = [], set()
                prepared = self._prepare(request)
            except Refused as refused:
                request.refused = refused
                continue
            waiting.append(prepared)
            if request.kind == PREDICT:
                fresh.update(str(name) for name in prepared.ids if name is not None)
        if waiting:
            blocks += self._learn_prepared(waiting)
        before_answers([request for request in requests if request.refused is None])
        for block in blocks:
            block.finish()
        return blocks

    def _all_plain(self, requests: list[Request]) -> list["Block"]:
        """Learn requests of plain numbers without ids, all encoded at once; nothing where any is not like that."""
        width = self.columns.plain_width
        rows = [row for request in requests if request.kind != PREDICT for row in request.rows]
        if any(request.kind == PREDICT for request in requests) or not all(len(row) == width for row in rows):
            return []
        encoded = self.session.encoder.encode_plain(rows, targets=True)
        return [] if encoded is None else self._learn(encoded, requests, (), {})

    # -- one request ---------------------------------------------------------------------------------------------------

    def _prepare(self, request: Request) -> Prepared:
        """The numbers of a request; refused whole where a row cannot be used."""
        name = self.columns.id
        if not any(name in row for row in request.rows):
            encoded = self.columns.encode(request.rows, targets=request.kind != PREDICT, grow=True)
            self._check_keys(encoded.keys)
            return Prepared(request, encoded, [None] * len(request.rows), {})
        if self.session.learner.options.has_memory:
            raise Refused(409, "ids: a model with memory must learn the rows in their order; use one without")
        request.ids = ids = [read_id(row[name]) if name in row else None for row in request.rows]
        if len(set(ids)) < len(ids) and any(ids.count(one) > 1 for one in set(ids) if one is not None):
            raise Refused(422, "the same id stands twice in one request")
        rows = [{key: value for key, value in row.items() if key != name} for row in request.rows]
        if request.kind == PREDICT:
            return self._checked(Prepared(request, self.columns.encode(rows, targets=False, grow=True), ids, {}))
        known = {at: self.session.held[one] for at, one in enumerate(ids) if one in self.session.held}
        for at, one in enumerate(ids):
            if at not in known and one is not None and not rows[at].keys() - set(self.columns.targets):
                raise Refused(404, f"row {at + 1:,}: the id {one!r:.60} is not waiting for its label")
        return self._checked(self._with_held(request, rows, ids, known))

    def _with_held(
        self, request: Request, rows: list[dict[str, Any]], ids: list[str | None], held: dict[int, np.ndarray]
    ) -> Prepared:
        """Rows with features of their own among those whose features were held."""
        past, width, count = self.session.learner.past_columns, self.session.encoder.width, len(rows)
        inputs, targets = np.zeros((count, width)), np.zeros((count, len(self.columns.targets)))
        keyed = self.session.schema.key
        keys = [str(rows[at].get(keyed) or "") for at in range(count)] if keyed else []
        own = [at for at in range(count) if at not in held]
        mark = self.session.encoder.mark()
        if own:
            encoded = self.columns.encode([rows[at] for at in own], targets=True, grow=True)
            inputs[own], targets[own] = encoded.inputs, encoded.targets
            for at, key in zip(own, encoded.keys, strict=False):
                keys[at] = key
        try:
            if keyed and not all(keys):
                raise Refused(422, f"row {keys.index('') + 1:,}: column {keyed!r}: the key is missing")
            targets[list(held)] = self.columns.encode_targets([rows[at] for at in held], list(held))
        except Refused:
            self.session.encoder.undo(mark)
            raise
        for at, row in held.items():
            inputs[at] = row[past:]
        encoded = Encoded(inputs, targets, keys, [], np.arange(1, count + 1), "", [])
        return Prepared(request, encoded, ids, {at: row[:past] for at, row in held.items()})

    def _checked(self, prepared: Prepared) -> Prepared:
        """Commit: the ids that got their label wait no more."""
        self._check_keys(prepared.encoded.keys)
        if prepared.request.kind != PREDICT:
            for at in prepared.held:
                del self.session.held[str(prepared.ids[at])]
        return prepared

    def _check_keys(self, keys: Sequence[str]) -> None:
        if keys and len(self.session.learner.keys) + len(set(keys)) > self.limits.keys:
            known = self.session.learner.keys
            if len(known.keys() | set(keys)) > self.limits.keys:
                raise Refused(422, f"{len(known):,} keys are known; no more than {self.limits.keys:,} are taken")

    # -- a block -------------------------------------------------------------------------------------------------------

    def _learn_prepared(self, prepared: list[Prepared]) -> list["Block"]:
        """Learn the rows of some requests, with the ids of all."""
        ids = [name for part in prepared for name in part.ids]
        held, first = {}, 0
        for part in prepared:
            held.update({first + at: row for at, row in part.held.items()})
            first += len(part.ids)
        whole = _joined([part.encoded for part in prepared])
        return self._learn(whole, [part.request for part in prepared], ids, held)

    def _learn(
        self, whole: Encoded, requests: list[Request], ids: Sequence[str | None], held: dict[int, np.ndarray]
    ) -> list["Block"]:
        """Learn rows as one block, or several where classes are added on the way."""
        session = self.session
        labelled = ~np.atleast_1d(np.isnan(whole.targets).all(axis=1))
        count = int(np.count_nonzero(labelled))
        session.counts.read += len(labelled)
        session.counts.learned += count
        session.counts.skipped += len(labelled) - count
        blocks, first = [], 0
        for part in self._parts(whole):
            rows = session.learner.rows(part.inputs, part.targets, keys=part.keys)
            last = first + len(part.inputs)
            for at in range(first, last) if held else ():
                if at in held:
                    self._put_past(rows.past, at - first, held[at])
            resets = session.resets(part) if self.columns.sequence else None
            learned = self.table.learn(rows, keys=part.keys, resets=resets)
            for at in range(first, last) if ids else ():
                name = ids[at]
                if name is not None and not labelled[at]:
                    self._hold(name, rows.past, at - first, part.inputs)
            blocks.append(Block(part.inputs, part.targets, self.known_targets, learned))
            first = last
        blocks[-1].requests = requests
        blocks[-1].before = blocks[:-1]
        blocks[-1].row = session.counts.learned
        return blocks

    def _parts(self, whole: Encoded) -> Iterator[Encoded]:
        """The rows in parts with the same known classes, so that no figure depends on how requests were grouped."""
        for part in by_classes(whole, self.session.learner, self.table.add_classes):
            first, count = 0, len(part.inputs)
            while first < count:
                known = [len(target.classes) or np.inf for target in self.known_targets]
                new = np.any(part.targets[first:] >= known, axis=1)
                last = first + (int(np.argmax(new)) if new.any() else len(new))
                if last > first:
                    yield part if last - first == count else rows_of(part, slice(first, last))
                if last < count:
                    self.known_targets = self._with_classes(part.targets[last])
                first = last

    def _with_classes(self, row: np.ndarray) -> tuple[Target, ...]:
        """The targets with the classes that are known from this row on."""
        names = self.session.encoder.classes
        return tuple(
            dataclasses.replace(target, classes=tuple(names[target.name][: int(value) + 1]))
            if target.classes and value >= len(target.classes)
            else target
            for target, value in zip(self.known_targets, row, strict=True)
        )

    def _put_past(self, numbers: Sequence[np.ndarray], row: int, held: np.ndarray) -> None:
        """The past targets that a row was predicted with."""
        first = 0
        for part, past in zip(numbers, self.session.learner.pasts, strict=True):
            part[row, : past.columns] = held[first : first + past.columns]
            first += past.columns

    def _hold(self, name: str, numbers: Sequence[np.ndarray], row: int, inputs: np.ndarray) -> None:
        pasts = [part[row, : past.columns] for part, past in zip(numbers, self.session.learner.pasts, strict=True)]
        self.session.held.pop(name, None)
        self.session.held[name] = np.concatenate([*pasts, inputs[row]])
        if len(self.session.held) > self.limits.ids:
            self.session.held.popitem(last=False)
            self.given_up += 1


class Block:
    """Rows that were learned together: what came, what was told, and the requests they answer."""

    def __init__(self, inputs: np.ndarray, observed: np.ndarray, targets: tuple[Target, ...], learned: Any):
        self.inputs, self.observed, self.targets = inputs, observed, targets
        self._learned = learned
        self.told: Predictions | None = None
        self.requests: list[Request] = []
        self.before: list[Block] = []
        self.row = 0

    def finish(self) -> None:
        """Wait for what was told; answer the requests, where this is the last block of theirs."""
        self.told = self._learned.wait()
        if not self.requests:
            return
        wanted = any(request.kind != LEARN for request in self.requests)
        parts = [*self.before, self]
        told = [answers.predictions(self.targets, told_of(part)) for part in parts] if wanted else []
        objects = [one for part in told for one in part]
        first = 0
        for request in self.requests:
            last = first + len(request.rows)
            for at, name in enumerate(request.ids if objects else (), first):
                if name is not None:
                    objects[at]["id"] = name
            if request.kind == LEARN:
                request.answer = {"learned": last - first, "rows": self.row}
            elif request.single:
                request.answer = objects[first]
            else:
                request.answer = {"predictions": objects[first:last]}
            first = last


def told_of(block: Block) -> Predictions:
    """What a block told."""
    assert block.told is not None
    return block.told


def _table(rows: list[dict[str, Any]], names: list[str]) -> Rows:
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    return Rows("the request", columns, np.arange(1, len(rows) + 1), [], 0, NOWHERE)


def _joined(parts: list[Encoded]) -> Encoded:
    if len(parts) == 1:
        return parts[0]
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[part[:2] for part in parts])
    return parts[0]._replace(
        inputs=whole[0],
        targets=whole[1],
        keys=[key for part in parts for key in part.keys],
        sequences=[name for part in parts for name in part.sequences],
        lines=np.arange(1, len(whole[0]) + 1),
    )
