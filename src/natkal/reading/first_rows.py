"""A first look at the data: enough rows to say what the columns are. Nothing here needs JAX, which starts slowly."""

from collections.abc import Iterable, Mapping
from typing import Any

from natkal.errors import StreamError, located
from natkal.reading.source import RowSource
from natkal.settings.settings import Settings
from natkal.tables.schema import cells
from natkal.tables.schema.infer import Schema, infer
from natkal.tables.schema.rows import Rows

MAX_UNLABELLED = 100_000
"""How many rows are looked at while none of their labels comes."""


def look(settings: Settings, source: RowSource) -> tuple[Schema, list[Rows]]:
    """The schema of the first rows, and those rows, to be learned; the source then reads on in the background."""
    try:
        with located(lambda: f"the first rows of {source.files[0]}"):
            first = _first(settings, source)
            _until_targets_move(settings, source, first)
            schema = recognise(settings, first, open_columns=source.open_columns, kinds=source.kinds)
    except StreamError:
        source.close()
        raise
    source.read_ahead(schema.all_numbers)
    return schema, first


def recognise(settings: Settings, first: list[Rows], *, open_columns: bool, kinds: Mapping[str, str]) -> Schema:
    """What the columns of the first rows are; a target at rest in those is known by all rows that were read."""
    check_readable(first)
    columns = _joined(first, settings.sample)
    at_rest = _at_rest(settings, columns)
    if at_rest:
        whole = _joined(first, MAX_UNLABELLED)
        columns |= {name: whole[name] for name in at_rest if name in whole}
    return infer(
        columns,
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


def _until_targets_move(settings: Settings, source: RowSource, first: list[Rows]) -> None:
    """Read on, where the end is known, while a target is 0 (or 1) in every row: a rare class, or a number at rest.

    A pipe or a topic is not waited for: there it is a class, and decimals that come later are rejected with what to do.
    """
    if source.share() is None or not _at_rest(settings, _joined(first, settings.sample)):
        return
    while _at_rest(settings, _joined(first[-1:], MAX_UNLABELLED)) and sum(map(len, first)) < MAX_UNLABELLED:
        more = source.read()
        if more is None:
            return
        if more.read:
            first.append(more)


def _at_rest(settings: Settings, columns: dict[str, list[Any]]) -> list[str]:
    """The targets that nothing was said of and that are 0, or 1, in all of these rows."""
    if settings.task is not None or settings.classes or settings.label_topic is not None:
        return []
    return [name for name in settings.targets if _one_label(columns.get(name, ()))]


def _one_label(column: Iterable[Any]) -> bool:
    """Whether the cells that are there are 0, or 1, all of them."""
    seen = {
        repr(cell) if isinstance(cell, list | dict | bytes) else cells.class_name(cell, whole=True) for cell in column
    }
    return seen - {None} <= {"0"} or seen - {None} <= {"1"}


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
