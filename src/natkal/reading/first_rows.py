"""A first look at the data: enough rows to say what the columns are. Nothing here needs JAX, which starts slowly."""

from collections.abc import Mapping
from typing import Any

from natkal.errors import StreamError, located
from natkal.reading.source import RowSource
from natkal.settings.settings import Settings
from natkal.tables.schema.infer import Schema, infer
from natkal.tables.schema.rows import Rows

MAX_UNLABELLED = 100_000
"""How many rows are looked at while none of their labels comes."""


def look(settings: Settings, source: RowSource) -> tuple[Schema, list[Rows]]:
    """The schema of the first rows, and those rows, to be learned; the source then reads on in the background."""
    try:
        with located(lambda: f"the first rows of {source.files[0]}"):
            first = _first(settings, source)
            schema = recognise(settings, first, open_columns=source.open_columns, kinds=source.kinds)
    except StreamError:
        source.close()
        raise
    source.read_ahead(schema.all_numbers)
    return schema, first


def recognise(settings: Settings, first: list[Rows], *, open_columns: bool, kinds: Mapping[str, str]) -> Schema:
    """What the columns of the first rows are."""
    check_readable(first)
    return infer(
        _joined(first, settings.sample),
        settings.targets,
        task=settings.task,
        features=settings.features,
        classes=settings.classes,
        key=settings.key,
        sequence=settings.sequence,
        missing=settings.missing,
        apart=[settings.id] if settings.id else [],
        decimal=settings.decimal,
        open_columns=open_columns,
        kinds=kinds,
    )


def enough(settings: Settings, first: list[Rows]) -> bool:
    """Whether these are the first rows: as many as asked for, and where labels are a topic of their own as many of
    them, unless rows without labels would become too many to hold."""
    data = sum(len(rows) for rows in first if not rows.labels)
    labels = sum(len(rows) for rows in first if rows.labels)
    return data >= settings.sample and (
        settings.label_topic is None or labels >= settings.sample or data >= MAX_UNLABELLED
    )


def check_readable(first: list[Rows]) -> None:
    """Refuse data without any row."""
    if not any(map(len, first)):
        reject = next((rows.rejects[0] for rows in first if rows.rejects), None)
        why = f"; {reject.file}, line {reject.line:,}: {reject.reason}" if reject else ""
        raise StreamError(f"the data holds no row that can be read{why}")


def _first(settings: Settings, source: RowSource) -> list[Rows]:
    first: list[Rows] = []
    while not enough(settings, first):
        rows = source.read()
        if rows is None:
            break
        if rows.read:
            first.append(rows)
    return first


def _joined(every: list[Rows], sample: int) -> dict[str, list[Any]]:
    """The columns of the first rows, and of the first labels; a column that a block lacks is missing in its rows."""
    blocks: list[Rows] = []
    for labels in (False, True):
        room = sample
        for block in every:
            if block.labels == labels and room > 0:
                blocks.append(block.part(0, min(room, len(block))))
                room -= len(blocks[-1])
    names = list(dict.fromkeys(name for block in blocks for name in block.columns))
    columns = {}
    for name in names:
        column: list[Any] = []
        for block in blocks:
            column.extend(block.columns.get(name, [None] * len(block)))
        columns[name] = column
    return columns
