"""Blocks of CSV that hold nothing but plain numbers, read in C: by pyarrow where it is installed, by NumPy elsewhere.

Both give the double nearest to what is written, as Python's own `float` does, so it does not matter which one read a
block. Both stand aside (None) for any block in which anything is odd; the careful reader then looks at every cell.
"""

import functools
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

PLAIN = b"0123456789.+-eE\n"
"""What a line of decimal numbers is made of, beside its delimiter."""


def read_numbers(data: bytes, names: list[str], used: Sequence[str], delimiter: str) -> list[np.ndarray] | None:
    """The used columns as finite numbers; None unless every line has exactly its columns and every cell used is one."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if data[-1:] != b"\n":
        return None
    columns = _by_arrow(data, names, used, delimiter)
    if columns is None:
        columns = _by_numpy(data, names, used, delimiter)
    return columns if columns is not None and all(np.isfinite(column).all() for column in columns) else None


def _by_arrow(data: bytes, names: list[str], used: Sequence[str], delimiter: str) -> list[np.ndarray] | None:
    """By pyarrow, where every byte is part of a decimal number or ends one: there it takes what `float` takes."""
    arrow = _arrow()
    if arrow is None or data.translate(None, PLAIN + delimiter.encode()):
        return None
    read = arrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(data), 1))
    parse = arrow.csv.ParseOptions(delimiter=delimiter, quote_char=False, double_quote=False, ignore_empty_lines=False)
    convert = arrow.csv.ConvertOptions(
        column_types=dict.fromkeys(used, arrow.float64()), include_columns=list(used), null_values=[]
    )
    try:
        table = arrow.csv.read_csv(arrow.BufferReader(data), read, parse, convert)
    except arrow.ArrowInvalid:
        return None
    return [np.concatenate([plain_array(chunk) for chunk in column.chunks]) for column in table.columns]


def _by_numpy(data: bytes, names: list[str], used: Sequence[str], delimiter: str) -> list[np.ndarray] | None:
    """By NumPy, which does not count columns or lines: that is done first."""
    if b'"' in data or b"\0" in data or b"\r" in data:
        return None
    codes = np.frombuffer(data, np.uint8)
    ends = codes[(codes == ord(delimiter)) | (codes == ord("\n"))]
    if len(ends) % len(names):
        return None
    newlines = (ends == ord("\n")).reshape(-1, len(names))
    if newlines[:, :-1].any() or not newlines[:, -1].all():
        return None
    columns = [names.index(name) for name in used]
    try:
        table = np.loadtxt(
            io.BytesIO(data), delimiter=delimiter, comments=None, usecols=columns, ndmin=2, encoding="ascii"
        )
    except ValueError:
        return None
    return list(table.T) if len(table) == len(newlines) else None


def plain_array(array: Any) -> np.ndarray:
    """An Arrow array of numbers, none missing, without copying; its own `to_numpy` would import pandas first."""
    kind = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


@functools.cache
def _arrow() -> Any:
    """Pyarrow with its CSV reader, or None."""
    try:
        import pyarrow
        import pyarrow.csv
    except ModuleNotFoundError:
        return None
    return pyarrow
