"""Predictions gathered block by block, and given back in the kind of table that was asked in."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from natkal.reading.memory import collected, is_pandas, is_polars
from natkal.runs.answers import as_rows, prediction_columns
from natkal.runs.predict_rows import Predicted
from natkal.tables.schema.infer import Target
from natkal.tables.schema.rows import Reject


class Answers:
    """One answer for each row that was asked; missing values where a row cannot be used."""

    def __init__(self, targets: Sequence[Target], level: float):
        self.rejects: list[Reject] = []
        self._targets = targets
        self._level = level
        self._blocks: list[dict[str, Any]] = []

    def add(self, block: Predicted) -> None:
        """The predictions of some rows."""
        self.rejects += block.encoded.rejects
        if block.told is None:
            self._blocks.append({"": [None] * len(block.rows)})
            return
        columns = prediction_columns(self._targets, block.told.targets, self._level)
        if len(block.encoded.lines) < len(block.rows):
            place = np.searchsorted(block.rows.lines, block.encoded.lines)
            columns = {name: _spread(values, place, len(block.rows)) for name, values in columns.items()}
        self._blocks.append(columns)

    def columns(self) -> dict[str, Any]:
        """All of it, column by column: arrays of numbers, lists of names."""
        names = next((list(block) for block in self._blocks if "" not in block), [])
        found: dict[str, Any] = {}
        for name in names:
            parts = [block.get(name, [None] * len(next(iter(block.values())))) for block in self._blocks]
            if any(isinstance(part, np.ndarray) for part in parts):
                found[name] = np.concatenate([np.asarray(part, np.float64) for part in parts])
            else:
                found[name] = [value for part in parts for value in part]
        return found

    def like(self, asked: Any) -> Any:
        """A frame of the kind of `asked`; a list of dicts where that is no frame."""
        asked = collected(asked)
        return as_table(self.columns(), table_kind(asked), getattr(asked, "index", None))


def table_kind(data: Any) -> str:
    """Which kind of table this is: pandas, polars, pyarrow, or rows for anything else."""
    data = collected(data)
    if is_pandas(data) or is_polars(data):
        return "pandas" if is_pandas(data) else "polars"
    return "pyarrow" if type(data).__module__.startswith("pyarrow") else "rows"


def as_table(columns: dict[str, Any], kind: str, index: Any = None) -> Any:
    """Columns as a table of this kind; a list of dicts for rows. `index` is that of a pandas frame."""
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(columns, index=index)
    if kind == "polars":
        import polars

        return polars.DataFrame(columns)
    if kind == "pyarrow":
        import pyarrow

        return pyarrow.table(columns)
    return as_rows(columns)


def _spread(values: Any, place: np.ndarray, count: int) -> Any:
    """The values at their rows, missing elsewhere."""
    if isinstance(values, np.ndarray):
        full = np.full(count, np.nan)
        full[place] = values
        return full
    cells: list[Any] = [None] * count
    for row, value in zip(place, values, strict=True):
        cells[row] = value
    return cells
