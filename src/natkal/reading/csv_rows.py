"""CSV: whole blocks of plain numbers at C speed, and a careful reader for every block that is anything else."""

import csv
import io
import re
from collections.abc import Sequence

import numpy as np

from natkal.reading.lines import LONGEST, LineBlock, LineReader
from natkal.reading.number_blocks import read_numbers
from natkal.tables.schema.rows import Column, Position, Reject, Rows, shown


class CsvRows:
    """Rows of one CSV file."""

    open_columns = False

    def __init__(self, reader: LineReader, names: Sequence[str], delimiter: str, file: str, number: int):
        self._reader = reader
        self._names = list(names)
        self._delimiter = delimiter
        self._file = file
        self._number = number
        # A field is free of quotes, or begins and ends with one and doubles those inside.
        field = rf'(?:[^"\r\n{re.escape(delimiter)}]*|"(?:[^"]|"")*")'
        self._quoting = re.compile(rf"{field}(?:{re.escape(delimiter)}{field})*")
        self.numeric: Sequence[str] = ()
        """The columns in use, where all of them are numbers: then whole blocks are read at once."""

    def read(self) -> Rows | None:
        """The next rows, or None at the end of the file."""
        block = self._reader.read()
        if block is None:
            return None
        if block.overlong:
            reject = Reject(self._file, block.line, f"the line is longer than {LONGEST:,} bytes", "")
            return self._rows({name: [] for name in self._names}, [], [reject], 0, block.end)
        if self.numeric:
            found = read_numbers(block.data, self._names, self.numeric, self._delimiter)
            if found is not None:
                lines = np.arange(block.line, block.line + len(found[0]), dtype=np.int64)
                columns: dict[str, Column] = dict(zip(self.numeric, found, strict=True))
                return Rows(self._file, columns, lines, [], 0, self._position(block.end))
        return self._careful(block)

    def _careful(self, block: LineBlock) -> Rows:
        lines: list[int] = []
        records: list[list[str]] = []
        rejects: list[Reject] = []
        blank = 0
        raw = _split(block.data)
        at, used = 0, 0
        end = block.end
        while at < len(raw):
            line, taken = raw[at], 1
            if line.count(b'"') % 2:
                closing = next((i for i in range(at + 1, len(raw)) if raw[i].count(b'"') % 2), None)
                if (
                    closing is None
                    and len(block.data) - used <= LONGEST
                    and self._reader.put_back(block, used, at, more=True)
                ):
                    end -= len(block.data) - used
                    break
                if closing is not None:
                    joined = b"".join(raw[at : closing + 1])
                    if len(joined) <= LONGEST and not isinstance(self._cells(joined), str):
                        line, taken = joined, closing + 1 - at
            if not line.strip(b"\r\n"):
                blank += 1
            else:
                cells = self._cells(line)
                if isinstance(cells, str):
                    rejects.append(Reject(self._file, block.line + at, cells, shown(line.rstrip(b"\r\n"))))
                else:
                    lines.append(block.line + at)
                    records.append(cells)
            used += sum(map(len, raw[at : at + taken]))
            at += taken
        columns = [list(column) for column in zip(*records, strict=True)] if records else [[] for _ in self._names]
        return self._rows(dict(zip(self._names, columns, strict=True)), lines, rejects, blank, end)

    def _cells(self, line: bytes) -> list[str] | str:
        """The cells of one record, or what is wrong with it."""
        if b"\0" in line:
            return "the row holds a NUL byte"
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            return f"the row is not UTF-8 text ({error.reason})"
        text = text.removesuffix("\n").removesuffix("\r")
        if '"' in text:
            if not self._quoting.fullmatch(text):
                return "the quoting is wrong"
            cells = next(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
        else:
            if "\r" in text:
                return "the row holds a carriage return outside quotes"
            cells = text.split(self._delimiter)
        if len(cells) != len(self._names):
            return f"{len(cells)} columns, the header has {len(self._names)}"
        return cells

    def _rows(self, columns: dict, lines: list[int], rejects: list[Reject], blank: int, end: int) -> Rows:
        return Rows(self._file, columns, np.array(lines, np.int64), rejects, blank, self._position(end))

    def _position(self, end: int) -> Position:
        return Position(file=self._number, offset=end, line=self._reader.line)


def _split(data: bytes) -> list[bytes]:
    """Lines ended by a newline alone: a carriage return is part of its line."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
