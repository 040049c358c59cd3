"""JSON objects one after the other, in an array or not, over any number of lines; in bounded memory."""

import re
from collections import deque

from natkal.reading.json_rows import KeyTable, parse
from natkal.reading.lines import LONGEST, LineReader
from natkal.tables.schema.rows import Position, Reject, Rows, shown

BETWEEN = re.compile(rb"[\[\],\s]*+")
"""What stands between two elements: commas, brackets of arrays, white space."""
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|["{}]', re.DOTALL)
"""A whole string, or the start of one that does not end here, or a brace."""
SCALAR_END = re.compile(rb"[,\]\n]")
OBJECT_END = re.compile(rb"(?<=\})\s*,\s*(?=\{)")
"""Where an object ends, most likely, if its braces and quotes do not say."""


class JsonArrayRows:
    """Rows of one file of JSON objects. A row's line is its number among them.

    An element ends where its braces close. One that is not closed within `LONGEST` bytes is damaged: those bytes are
    cut at every `}, {`, so that the damage costs no more than the elements it is in.
    """

    open_columns = True

    def __init__(self, reader: LineReader, file: str, number: int):
        self._reader = reader
        self._file = file
        self._number = number
        self._rest = b""
        self._ended = False
        self._skipping = False
        self._found: deque[tuple[bytes, int]] = deque()
        self._table = KeyTable(file)

    def read(self) -> Rows | None:
        """The next rows, or None at the end of the file."""
        while not self._found:
            if self._ended:
                return None
            self._rest += (more := self._reader.read_bytes())
            self._ended = not more
            self._split()
        rejects: list[Reject] = []
        line, end = self._reader.line, 0
        while self._found and not self._table.crowded:
            element, end = self._found.popleft()
            record = parse(element) if element else f"the object is longer than {LONGEST:,} bytes"
            if isinstance(record, str):
                rejects.append(Reject(self._file, line, record, shown(element)))
            else:
                self._table.add(record, line)
            line += 1
        self._reader.stand_at(self._reader.offset, line)
        return self._table.rows(rejects, 0, Position(file=self._number, offset=end, line=line))

    def _split(self) -> None:
        """Move complete elements from `_rest` to `_found`, each with the offset behind it; b"" for one too long."""
        data, at = self._rest, 0
        origin = self._reader.offset - len(data)
        if self._skipping:
            match = OBJECT_END.search(data)
            self._skipping = match is None and not self._ended
            at = match.end() if match else max(len(data) - 64, 0) if self._skipping else len(data)
            if not self._skipping:
                self._found.append((b"", origin + at))
        while not self._skipping:
            gap = BETWEEN.match(data, at)
            at = gap.end() if gap else at
            if at == len(data):
                break
            end = _end_of_element(data, at)
            if end is not None:
                self._found.append((data[at:end], origin + end))
                at = end
                continue
            limit = min(at + LONGEST, len(data))
            if limit == len(data) and not self._ended:
                break
            for match in OBJECT_END.finditer(data, at, limit):
                self._found.append((data[at : match.start()], origin + match.end()))
                at = match.end()
                end = at
            if limit == len(data):
                self._found.append((data[at:].rstrip(b"[], \t\r\n"), origin + len(data)))
                at = len(data)
            elif end is None:
                at, self._skipping = limit, True
        self._rest = data[at:]


def _end_of_element(data: bytes, at: int) -> int | None:
    """Where the element that starts here ends; None if not within `LONGEST` bytes, or not in these."""
    if data[at : at + 1] != b"{":
        match = SCALAR_END.search(data, at, at + LONGEST)
        return match.start() if match else None
    depth = 0
    for token in TOKEN.finditer(data, at, at + LONGEST):
        text = token.group()
        if text == b'"':
            return None
        depth += {b"{": 1, b"}": -1}.get(text, 0)
        if not depth:
            return token.end()
    return None
