"""Parquet and Arrow files, through pyarrow: schemas are compared before the first row."""

from pathlib import Path
from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.reading.number_blocks import plain_array
from natkal.tables.schema.rows import Column, Position, Rows, column_names

BATCH = 4096
EXACT = 2**53
"""Whole numbers up to here are exact as floats; a column with larger ones, ids perhaps, stays as it is."""


def need_arrow(what: str) -> Any:
    """Pyarrow, or how to get it."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise StreamError(f"{what} needs pyarrow: pip install 'natkal[files]'") from error
    return pyarrow


class ArrowRows:
    """Rows of one Parquet, Arrow or Feather file, `offset` rows in."""

    open_columns = False

    def __init__(self, path: Path, number: int, offset: int = 0):
        need_arrow(str(path))
        import pyarrow.dataset

        self._file = str(path)
        self._number = number
        self._done = 0
        self._skip = offset
        kind = "parquet" if path.suffix.lower() in (".parquet", ".pq") else "ipc"
        self._unchecked = kind == "ipc"
        try:
            dataset = pyarrow.dataset.dataset(path, format=kind)
            self.schema = dataset.schema
            self._batches = dataset.to_batches(batch_size=BATCH, use_threads=False)
        except (OSError, ValueError, NotImplementedError) as error:
            raise StreamError(f"{path}: cannot be read as {kind}: {error}") from error
        self.names, twice = column_names(self.schema.names)
        if twice is not None:
            raise StreamError(f"{path}: has the column {twice!r} twice")

    def read(self) -> Rows | None:
        """The next rows, or None at the end of the file."""
        for batch in self._batches:
            first = max(self._skip - self._done, 0)
            self._done += batch.num_rows
            if first >= batch.num_rows:
                continue
            if self._unchecked:
                batch.validate(full=True)  # offsets and lengths in an Arrow file are used as they are otherwise
            part = batch.slice(first)
            start = self._done - part.num_rows
            columns = {name: arrow_column(part.column(place)) for place, name in enumerate(self.names)}
            lines = np.arange(start + 1, self._done + 1, dtype=np.int64)
            return Rows(self._file, columns, lines, [], 0, Position(self._number, self._done, self._done + 1))
        return None


def arrow_column(array: Any) -> Column:
    """An array where all are finite numbers that float64 holds exactly or rounds, otherwise a list of cells."""
    import pyarrow
    import pyarrow.types as types

    whole = types.is_integer(array.type)
    if (types.is_floating(array.type) or whole) and array.null_count == 0:
        exact = plain_array(array)
        if whole and len(exact) and (exact.max() > EXACT or exact.min() < -EXACT):
            return array.to_pylist()
        values = exact.astype(np.float64)
        if np.isfinite(values).all():
            return values
    if types.is_timestamp(array.type) and array.type.unit == "ns":
        array = array.cast(pyarrow.timestamp("us", tz=array.type.tz), safe=False)
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
