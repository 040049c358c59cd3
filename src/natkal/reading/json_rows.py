"""JSON lines: one object per line, strict about what JSON leaves open."""

import json
import re
from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.reading.lines import LONGEST, LineReader
from natkal.tables.schema.rows import Column, Position, Reject, Rows, shown

MAX_KEYS = 10_000
"""How many different keys a file may have; one with more uses keys for what are values."""
MAX_CELLS = 4_000_000
"""How many cells a block may have, those of missing keys included."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class NotAllowed(ValueError):
    """JSON that Python reads and natkal does not: a key twice in one object, NaN, Infinity."""


class KeyTable:
    """Records on their way to be columns: which keys they have, and whether they are getting too many."""

    def __init__(self, file: str):
        self._file = file
        self._seen: set[str] = set()
        self._names: dict[str, None] = {}
        self._records: list[dict[str, Any]] = []
        self._lines: list[int] = []

    def add(self, record: dict[str, Any], line: int) -> None:
        """One more record, that began on this line."""
        self._records.append(record)
        self._lines.append(line)
        if self._names.keys() >= record.keys():
            return
        self._names.update(dict.fromkeys(record))
        self._seen.update(record)
        if len(self._seen) > MAX_KEYS:
            raise StreamError(
                f"{self._file}, line {line:,}: more than {MAX_KEYS:,} different keys so far; keys should name columns"
            )

    @property
    def crowded(self) -> bool:
        """Whether the block should end here."""
        return len(self._names) * len(self._records) > MAX_CELLS

    def rows(self, rejects: list[Reject], blank: int, position: Position) -> Rows:
        """The records so far as columns; a key that is not there is a missing value. Starts anew."""
        records, lines, names = self._records, self._lines, self._names
        self._records, self._lines, self._names = [], [], {}
        columns: dict[str, Column] = {name: [record.get(name) for record in records] for name in names}
        return Rows(self._file, columns, np.array(lines, np.int64), rejects, blank, position)


class JsonRows:
    """Rows of one JSON-lines file."""

    open_columns = True

    def __init__(self, reader: LineReader, file: str, number: int):
        self._reader = reader
        self._file = file
        self._number = number
        self._table = KeyTable(file)

    def read(self) -> Rows | None:
        """The next rows, or None at the end of the file."""
        block = self._reader.read()
        if block is None:
            return None
        rejects, blank, used, end = [], 0, 0, block.end
        if block.overlong:
            rejects.append(Reject(self._file, block.line, f"the line is longer than {LONGEST:,} bytes", ""))
        raw = block.data.split(b"\n")
        for number, line in enumerate(raw if raw[-1] else raw[:-1], block.line):
            used += len(line) + 1
            if not line.strip():
                blank += 1
                continue
            record = parse(line)
            if isinstance(record, str):
                rejects.append(Reject(self._file, number, record, shown(line)))
                continue
            self._table.add(record, number)
            if self._table.crowded and used < len(block.data):
                self._reader.put_back(block, used, number + 1 - block.line, more=False)
                end -= len(block.data) - used
                break
        return self._table.rows(rejects, blank, Position(file=self._number, offset=end, line=self._reader.line))


def parse(text: bytes) -> dict[str, Any] | str:
    """One object, or what is wrong with it."""
    if b"\0" in text:
        return "the row holds a NUL byte"
    try:
        record = DECODER.decode(text.decode("utf-8"))
        if SURROGATE.search(text):
            json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        return f"the row is not UTF-8 text ({error.reason})"
    except UnicodeEncodeError as error:
        return f"the row holds half of a surrogate pair, \\u{ord(error.object[error.start]):x}"
    except RecursionError:
        return "the row is nested too deeply"
    except json.JSONDecodeError as error:
        return f"the row is not JSON: {error.msg} at character {error.pos + 1}"
    except NotAllowed as error:
        return str(error)
    except ValueError:
        return "the row holds a number of too many digits"
    return record if isinstance(record, dict) else f"the row is a JSON {type(record).__name__}, not an object"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise NotAllowed(f"the key {twice!r} stands twice in one object")
    return record


def _constant(name: str) -> Any:
    raise NotAllowed(f"{name} is not a JSON number")


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
"""Made once: making one takes as long as a short row."""
