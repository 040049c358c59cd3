"""Messages of one partition as rows: each value is one JSON object."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.reading.json_rows import KeyTable, parse
from natkal.reading.lines import LONGEST
from natkal.tables.schema.rows import Position, Reject, Rows, shown

MARKS = {
    b"Obj\x01": "an Avro file",
    b"\xc3\x01": "Avro's single-object encoding",
    b"\x00": "the mark of a schema registry (Avro, Protobuf or JSON Schema)",
}
BRACE = b"{"[0]
REGISTRY_BYTES = 5
"""A byte 0 and four bytes of a schema's id stand before what a schema registry's serialiser wrote."""


class MessageRows:
    """Messages into rows, partition by partition. `columns`: the only ones to keep, where not all are wanted."""

    def __init__(self, columns: Sequence[str] | None = None):
        self._columns = None if columns is None else set(columns)
        self._tables: dict[str, KeyTable] = {}
        self._any = False

    def rows(self, messages: Sequence[Any], *, labels: bool = False, live: bool = False) -> Rows:
        """Consecutive messages of one partition; at least one."""
        last = messages[-1]
        name = partition_name(last.topic(), last.partition())
        table = self._tables.setdefault(name, KeyTable(name))
        rejects: list[Reject] = []
        blank = 0
        by_offset: dict[int, Any] = {}
        for message in messages:
            value, offset = message.value(), message.offset()
            by_offset[offset] = message
            if not value or value.isspace():
                blank += 1
                continue
            record = self._record(value, name, offset)
            if isinstance(record, str):
                rejects.append(Reject(name, offset, record, shown(value)))
                continue
            if labels and self._columns is not None:
                record = {key: cell for key, cell in record.items() if key in self._columns}
            self._any = True
            table.add(record, offset)
        position = Position(file=last.partition(), offset=last.offset() + 1, line=last.offset() + 1)
        rows = table.rows(rejects, blank, position)
        rows.partition = last.partition()
        rows.messages = by_offset
        rows.labels, rows.live = labels, live
        return rows

    def _record(self, value: bytes, name: str, offset: int) -> dict[str, Any] | str:
        if len(value) > LONGEST:
            return f"the message is longer than {LONGEST:,} bytes"
        mark = None if value[0] == BRACE else mark_of(value)
        if mark is None:
            return parse(value)
        reason = f"the message begins with {mark}; natkal reads JSON values"
        if not self._any:
            raise StreamError(
                f"{name}, message {offset:,}: {reason[len('the message ') :]}; write them with a JSON serialiser "
                "without a schema, or convert the topic first"
            )
        return reason


def mark_of(value: bytes) -> str | None:
    """What wrote a value that is no JSON, where its first bytes say so."""
    for mark, name in MARKS.items():
        if value.startswith(mark) and (mark != b"\x00" or len(value) > REGISTRY_BYTES):
            return name
    return None


def partition_name(topic: str, partition: int) -> str:
    """What a partition is called in rejects and in a checkpoint."""
    return f"{topic}[{partition}]"


def no_rows(name: str) -> Rows:
    """A block without rows: nothing has come for a while."""
    return Rows(name, {}, np.zeros(0, np.int64), [], 0, Position(0, 0, 0))
