"""Parquet and Arrow files, through pyarrow: schemas are compared before the first row."""

from pathlib import Path
from typing import Any

import numpy as np

from natkal.app.reading.number_blocks import plain_array
from natkal.tabular.errors import StreamError
from natkal.tabular.table import Column, Position, Rows

BATCH = 4096


def need_arrow(what: str) -> Any:
    """Pyarrow, or how to get it."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise StreamError(f"{what} needs pyarrow: pip install 'natkal[files]'") from error
    return pyarrow


class ArrowRows:
    """Rows of one Parquet, Arrow or Feather file, `offset` rows in."""

    def __init__(self, path: Path, number: int, offset: int = 0):
        need_arrow(str(path))
        import pyarrow.dataset

        self._file = str(path)
        self._number = number
        self._done = 0
        self._skip = offset
        kind = "parquet" if path.suffix.lower() in (".parquet", ".pq") else "ipc"
        try:
            dataset = pyarrow.dataset.dataset(path, format=kind)
            self.schema = dataset.schema
            self._batches = dataset.to_batches(batch_size=BATCH, use_threads=False)
        except (OSError, ValueError) as error:
            raise StreamError(f"{path}: cannot be read as {kind}: {error}") from error

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.schema.names)

    def read(self) -> Rows | None:
        """The next rows, or None at the end of the file."""
        for batch in self._batches:
            first = max(self._skip - self._done, 0)
            self._done += batch.num_rows
            if first >= batch.num_rows:
                continue
            part = batch.slice(first)
            start = self._done - part.num_rows
            columns = {name: _column(part.column(name)) for name in part.schema.names}
            lines = np.arange(start + 1, self._done + 1, dtype=np.int64)
            return Rows(self._file, columns, lines, [], 0, Position(self._number, self._done, self._done + 1))
        return None


def _column(array: Any) -> Column:
    import pyarrow.types as types

    plain = types.is_floating(array.type) or types.is_integer(array.type)
    if plain and array.null_count == 0:
        values = plain_array(array).astype(np.float64)
        if np.isfinite(values).all():
            return values
    return array.to_pylist()


def check_same_schema(first: ArrowRows, other: ArrowRows) -> None:
    """Every file must have the first one's columns, with its types."""
    types = {field.name: field.type for field in first.schema}
    for field in other.schema:
        if field.name in types and field.type != types[field.name]:
            raise StreamError(
                f"{other._file}: column {field.name!r} is {field.type}, in {first._file} it is {types[field.name]}"
            )
    missing = [name for name in types if name not in other.schema.names]
    if missing:
        raise StreamError(f"{other._file}: has no column {missing[0]!r}, which {first._file} has")
