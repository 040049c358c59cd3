"""Rows that are in memory: data frames, Arrow tables, columns by name, and iterables of rows or of batches of rows."""

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from natkal.errors import StreamError, located
from natkal.reading.columnar import arrow_column, need_arrow
from natkal.reading.json_rows import KeyTable
from natkal.reading.source import RowSource, Source, find_files
from natkal.tables.schema.frames import column_cells, column_kind
from natkal.tables.schema.rows import Column, Position, Rows

BLOCK_ROWS = 4096
WAITING_ROWS = 256
"""Rows of an iterable that are collected before they are learned."""
TAKES = "a pandas or polars frame, an Arrow table, a path, a dict of columns, or an iterable of dicts"


def open_data(data: Any, targets: Sequence[str], encoding: str = "utf-8") -> RowSource:
    """The rows of whatever `nk.learn` takes."""
    if isinstance(data, str | os.PathLike):
        return Source(find_files([os.fspath(data)]), encoding=encoding)
    if isinstance(data, list | tuple) and data and all(isinstance(name, str | os.PathLike) for name in data):
        return Source(find_files([os.fspath(name) for name in data]), encoding=encoding)
    data = collected(data)
    name = f"{type(data).__name__} in memory"
    if is_pandas(data) or is_polars(data):
        columns = frame_columns(data)
        kinds = {key: "category" for key, column in columns.items() if column_kind(column.dtype) == "category"}
        return MemorySource(name, _frame_blocks(columns, len(data)), count=len(data), kinds=kinds)
    if type(data).__module__.startswith("pyarrow") or hasattr(data, "__arrow_c_stream__"):
        return _arrow_source(name, data)
    if isinstance(data, Mapping):
        return _column_source(name, data)
    if isinstance(data, np.ndarray) or hasattr(data, "__array__"):
        raise StreamError(f"data: an array has no names of columns; give {TAKES}")
    if not isinstance(data, Iterable) and not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise StreamError(f"data: cannot read rows from {type(data).__name__}; give {TAKES}")
    return MemorySource(name, _row_blocks(data, targets, name), open_columns=True, count=_length(data))


class MemorySource:
    """Blocks of columns, one after the other, as `Source` gives those of files."""

    def __init__(
        self,
        name: str,
        blocks: Iterator[dict[str, Column]],
        *,
        open_columns: bool = False,
        count: int | None = None,
        kinds: Mapping[str, str] | None = None,
    ):
        self.files = [name]
        self.names = [name]
        self.open_columns = open_columns
        self.kinds = dict(kinds or {})
        self.stop: Callable[[], bool] = lambda: False
        self._blocks = blocks
        self._count = count
        self._done = 0

    def share(self) -> float | None:
        """How much of the data has been taken, from 0 to 1; None where its length is not known."""
        return self._done / self._count if self._count else None

    def read_ahead(self, numeric: Sequence[str]) -> None:
        """Nothing to do: the rows are in memory."""

    def read(self) -> Rows | None:
        """The next rows, or None at the end."""
        with located(lambda: f"{self.files[0]}, behind row {self._done:,}"):
            columns = next(self._blocks, None)
        if columns is None:
            return None
        count = len(next(iter(columns.values()))) if columns else 0
        lines = np.arange(self._done + 1, self._done + count + 1, dtype=np.int64)
        self._done += count
        return Rows(self.files[0], columns, lines, [], 0, Position(0, self._done, self._done + 1))

    def mark(self, offsets: Mapping[str, int]) -> None:
        """Nothing to do: the rows are in memory."""

    def close(self) -> None:
        """Nothing is open."""


def collected(data: Any) -> Any:
    """A lazy frame of polars as a frame; anything else as it is."""
    return data.collect() if hasattr(data, "collect") and hasattr(data, "columns") else data


def is_pandas(data: Any) -> bool:
    """Whether this is a data frame of pandas."""
    return hasattr(data, "iloc") and hasattr(data, "columns")


def is_polars(data: Any) -> bool:
    """Whether this is a data frame of polars."""
    return type(data).__module__.startswith("polars") and hasattr(data, "columns")


def frame_columns(frame: Any) -> dict[str, Any]:
    """The columns of a frame by name; the index of a pandas frame is one of them if it holds times."""
    names = [str(name) for name in frame.columns]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise StreamError(f"the frame has the column {twice!r} twice")
    by_place = (lambda place: frame.iloc[:, place]) if is_pandas(frame) else (lambda place: frame[:, place])
    columns = {name: by_place(place) for place, name in enumerate(names)}
    index: Any = frame.index if is_pandas(frame) else None
    if getattr(getattr(index, "dtype", None), "kind", "") == "M" and str(index.name or "time") not in columns:
        return {str(index.name or "time"): index.to_series(), **columns}
    return columns


def _frame_blocks(columns: Mapping[str, Any], count: int) -> Iterator[dict[str, Column]]:
    for first in range(0, count, BLOCK_ROWS):
        part = slice(first, first + BLOCK_ROWS)
        yield {
            name: column_cells(column.iloc[part] if hasattr(column, "iloc") else column[part])
            for name, column in columns.items()
        }


def _arrow_source(name: str, data: Any) -> MemorySource:
    """Anything that speaks Arrow: tables, batches and their readers, relations of a database."""
    pyarrow: Any = need_arrow(name)
    try:
        table = data.read_all() if hasattr(data, "read_all") else pyarrow.table(data)
    except pyarrow.ArrowInvalid as error:
        raise StreamError(f"data: {type(data).__name__} has no named columns; give {TAKES}") from error
    kinds = {field.name: "category" for field in table.schema if pyarrow.types.is_dictionary(field.type)}

    def blocks() -> Iterator[dict[str, Column]]:
        for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
            yield {key: arrow_column(batch.column(place)) for place, key in enumerate(table.schema.names)}

    return MemorySource(name, blocks(), count=table.num_rows, kinds=kinds)


def _column_source(name: str, data: Mapping[Any, Any]) -> MemorySource:
    """A dict of columns of one length."""
    columns = {str(key): _as_column(values) for key, values in data.items()}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise StreamError(f"data: the columns of a dict must have one length, these have {sorted(lengths)}")
    count = lengths.pop()
    blocks = (
        {key: values[first : first + BLOCK_ROWS] for key, values in columns.items()}
        for first in range(0, count, BLOCK_ROWS)
    )
    return MemorySource(name, blocks, count=count)


def _length(data: Any) -> int | None:
    """How many rows there are, where it is known that each item is one."""
    return len(data) if isinstance(data, Sequence) else None


def _row_blocks(data: Any, targets: Sequence[str], name: str) -> Iterator[dict[str, Column]]:
    """Blocks of an iterable: single rows are collected, batches are taken as they come."""
    items = data if isinstance(data, Iterable) else (data[place] for place in range(len(data)))
    waiting, held = KeyTable(name), 0
    nowhere = Position(0, 0, 0)
    for number, item in enumerate(items, 1):
        record = _named(item, targets, number)
        if _is_batch(record):
            if held:
                yield waiting.rows([], 0, nowhere).columns
                held = 0
            yield _batch(record)
            continue
        waiting.add(_flat(record), number)
        held += 1
        if held == WAITING_ROWS or waiting.crowded:
            yield waiting.rows([], 0, nowhere).columns
            held = 0
    if held:
        yield waiting.rows([], 0, nowhere).columns


def _named(item: Any, targets: Sequence[str], number: int) -> Mapping[str, Any]:
    """An item by names: a dict as it is, a pair (inputs, target) as x1, x2, ... and the target."""
    if isinstance(item, Mapping):
        return {str(key): _plain(value) for key, value in item.items()}
    if isinstance(item, tuple | list) and len(item) == 2 and len(targets) == 1:
        inputs, target = item
        if isinstance(inputs, Mapping):
            return {**{str(key): _plain(value) for key, value in inputs.items()}, targets[0]: _plain(target)}
        values = np.asarray(_plain(inputs))
        if values.dtype != object:
            return {"x": values, targets[0]: _plain(target)}
    raise StreamError(
        f"data: item {number:,} is a {type(item).__name__}; each must be a dict of cells, or a pair (inputs, target)"
    )


def _plain(value: Any) -> Any:
    """A tensor as an array, a scalar of any library as Python's."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")
    if np.ndim(value) == 0 and hasattr(value, "item") and not isinstance(value, datetime.date):
        return value.item()
    return value


def _is_batch(record: Mapping[str, Any]) -> bool:
    """Whether the cells are columns: all of one length, and at least one an array.

    A pair (inputs, target) is a batch where the target has a length.
    """
    sized = [value for value in record.values() if not isinstance(value, str) and hasattr(value, "__len__")]
    arrays = any(getattr(value, "ndim", 0) for value in sized)
    return arrays and len(sized) == len(record) and len({len(value) for value in sized}) == 1


def _batch(record: Mapping[str, Any]) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for name, value in record.items():
        if getattr(value, "ndim", 1) < 2:
            columns[name] = _as_column(value)
            continue
        table = np.asarray(value, np.float64).reshape(len(value), -1)
        columns |= {f"{name}{place + 1}": _as_column(table[:, place]) for place in range(table.shape[1])}
    return columns


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose vectors are spread over numbered columns."""
    row: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, np.ndarray) and value.ndim:
            row |= {f"{name}{place + 1}": cell for place, cell in enumerate(value.ravel().tolist())}
        else:
            row[name] = value
    return row


def _as_column(values: Any) -> Column:
    if hasattr(values, "to_list") and hasattr(values, "dtype"):
        return column_cells(values)
    if not isinstance(values, np.ndarray):
        return [_plain(value) for value in values]
    if values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
        return numbers if np.isfinite(numbers).all() else numbers.tolist()
    return [_plain(value) for value in values]
