"""JSON lines: one object per line, strict about what JSON leaves open."""

import json
from typing import Any

import numpy as np

from natkal.app.reading.csv_rows import shown
from natkal.app.reading.lines import LONGEST, LineReader
from natkal.tabular.table import Column, Position, Reject, Rows


class JsonRows:
    """Rows of one JSON-lines file; a column is a key, and a key that is not there is a missing value."""

    def __init__(self, reader: LineReader, file: str, number: int):
        self._reader = reader
        self._file = file
        self._number = number

    def read(self) -> Rows | None:
        """The next rows, or None at the end of the file."""
        block = self._reader.read()
        if block is None:
            return None
        lines, records, rejects, blank = [], [], [], 0
        if block.overlong:
            rejects.append(Reject(self._file, block.line, f"the line is longer than {LONGEST:,} bytes", ""))
        raw = block.data.split(b"\n")
        for number, line in enumerate(raw[:-1] if not raw[-1] else raw, block.line):
            if not line.strip():
                blank += 1
                continue
            record = parse(line)
            if isinstance(record, str):
                rejects.append(Reject(self._file, number, record, shown(line)))
            else:
                lines.append(number)
                records.append(record)
        names = list(dict.fromkeys(name for record in records for name in record))
        columns: dict[str, Column] = {name: [record.get(name) for record in records] for name in names}
        position = Position(file=self._number, offset=block.end, line=self._reader.line)
        return Rows(self._file, columns, np.array(lines, np.int64), rejects, blank, position)


def parse(line: bytes) -> dict[str, Any] | str:
    """One object, or what is wrong with it."""
    if b"\0" in line:
        return "the row holds a NUL byte"
    try:
        record = json.loads(line.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError as error:
        return f"the row is not UTF-8 text ({error.reason} at byte {error.start})"
    except RecursionError:
        return "the row is nested too deeply"
    except json.JSONDecodeError as error:
        return f"the row is not JSON: {error.msg} at character {error.pos + 1}"
    except ValueError as error:
        return str(error)
    return record if isinstance(record, dict) else f"the row is a JSON {type(record).__name__}, not an object"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return record


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
