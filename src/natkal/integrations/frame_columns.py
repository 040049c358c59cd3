"""Frames of pandas or polars whose columns are not all numbers: encoded as `natkal learn` encodes a file's columns."""

from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.tables.encode.encoder import Encoder
from natkal.tables.schema.frames import column_cells, column_kind
from natkal.tables.schema.infer import infer
from natkal.tables.schema.rows import Column, Position, Rows

TARGET = "\0target"
"""The schema's target, which no column of a frame is."""


def has_other_than_numbers(X: Any) -> bool:
    """Whether this is a frame with a column of another type than numbers."""
    return hasattr(X, "columns") and any(column_kind(dtype) != "number" for dtype in X.dtypes)


class FrameColumns:
    """How the columns of a frame become numbers, decided from the first rows and kept."""

    def __init__(self, X: Any):
        columns = _cells(X)
        kinds = zip(_names(X), map(column_kind, X.dtypes), strict=True)
        wanted = [f"{name}:{kind}" if kind else name for name, kind in kinds]
        try:
            self._encoder = Encoder(
                infer({**columns, TARGET: np.zeros(len(X))}, [TARGET], task="regression", features=wanted)
            )
        except StreamError as error:
            raise ValueError(f"X: {error}") from error

    @property
    def scaled(self) -> list[bool]:
        """Which numbers of a row are plain ones, to be standardised."""
        return self._encoder.scaled.tolist()

    def numbers(self, X: Any) -> np.ndarray:
        """The rows as numbers, NaN where missing."""
        rows = Rows("X", _cells(X), np.arange(len(X)), [], 0, Position(0, 0, 0))
        encoded = self._encoder.encode(rows)
        if encoded.rejects:
            raise ValueError(f"X: {encoded.rejects[0].reason} (row {encoded.rejects[0].line})")
        self._encoder.accept(encoded.additions)
        return encoded.inputs


def _names(X: Any) -> list[str]:
    names = list(X.columns)
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise ValueError("X: the columns of a frame that are not all numbers need names that differ")
    return names


def _cells(X: Any) -> dict[str, Column]:
    """Each column as finite numbers, or as cells with None where one is missing."""
    return {name: column_cells(X[name]) for name in _names(X)}
