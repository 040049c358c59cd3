"""A first look at the data: enough rows to say what the columns are. Nothing here needs JAX, which starts slowly."""

from typing import Any

from natkal.app.reading.source import RowSource
from natkal.app.settings import Settings
from natkal.tabular.errors import StreamError, located
from natkal.tabular.schema import Schema, infer
from natkal.tabular.table import Rows


def look(settings: Settings, source: RowSource) -> tuple[Schema, list[Rows]]:
    """The schema of the first rows, and those rows, to be learned; the source then reads on in the background."""
    try:
        with located(lambda: f"the first rows of {source.files[0]}"):
            first = _first(settings.sample, source)
            schema = infer(
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
                open_columns=source.open_columns,
                kinds=source.kinds,
            )
    except StreamError:
        source.close()
        raise
    source.read_ahead(schema.all_numbers)
    return schema, first


def _first(sample: int, source: RowSource) -> list[Rows]:
    first: list[Rows] = []
    count = 0
    while count < sample:
        rows = source.read()
        if rows is None:
            break
        first.append(rows)
        count += len(rows)
    if not count:
        reject = next((rows.rejects[0] for rows in first if rows.rejects), None)
        why = f"; {reject.file}, line {reject.line:,}: {reject.reason}" if reject else ""
        raise StreamError(f"the data holds no row that can be read{why}")
    return first


def _joined(blocks: list[Rows], limit: int) -> dict[str, list[Any]]:
    """The columns of the first `limit` rows; a column that a block lacks is missing in its rows."""
    names = list(dict.fromkeys(name for block in blocks for name in block.columns))
    columns = {}
    for name in names:
        column: list[Any] = []
        for block in blocks:
            column.extend(block.columns.get(name, [None] * len(block)))
        columns[name] = column[:limit]
    return columns
