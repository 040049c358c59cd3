"""Columns of pandas and polars frames as cells: finite numbers as arrays, anything else as lists with None for missing.

Both libraries are used through methods they share; neither is imported.
"""

from typing import Any

import numpy as np

from natkal.tables.schema.rows import Column

KINDS = {"b": "boolean", "M": "time", "i": "number", "u": "number", "f": "number"}
CATEGORIES = ("category", "Categorical", "Enum")
"""How pandas and polars begin the names of their types for categories."""


def column_kind(dtype: Any) -> str | None:
    """The kind of feature that a column's type says, None where its cells must say it."""
    if str(dtype).startswith(CATEGORIES):
        return "category"
    if hasattr(dtype, "is_numeric"):  # polars
        temporal = "time" if dtype.is_temporal() else {"Boolean": "boolean"}.get(str(dtype))
        return "number" if dtype.is_numeric() else temporal
    return KINDS.get(dtype.kind)


def column_cells(column: Any) -> Column:
    """A column as finite numbers, or as cells with None where one is missing."""
    missing = np.asarray(column.isna() if hasattr(column, "isna") else column.is_null())
    if column_kind(column.dtype) == "number" and not missing.any():
        numbers = column.to_numpy().astype(np.float64)
        return numbers if np.isfinite(numbers).all() else numbers.tolist()
    return [None if gone else cell for cell, gone in zip(column.to_list(), missing, strict=True)]
