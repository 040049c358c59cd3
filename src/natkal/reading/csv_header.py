"""The header of a CSV file: names of the columns, and the delimiter."""

import csv
import re

from natkal.errors import StreamError
from natkal.reading.lines import LONGEST, LineReader
from natkal.tables.schema.rows import column_names

DELIMITERS = ",;\t|"
BLANK = b' \t\r\n,;|"'
"""A line made of these alone comes before the header, as spreadsheets write empty rows."""
MAX_BLANK_LINES = 10_000
QUOTED = re.compile('"[^"]*"')


def read_header(reader: LineReader, file: str) -> tuple[list[str], str]:
    """Column names and the delimiter, from the first line that is not blank. A quoted name may hold newlines."""
    text = _decoded(_first_line(reader, file), file)
    bare = QUOTED.sub("", text)
    if "\r" in bare:
        raise StreamError(f"{file}: a carriage return stands alone in the header; lines must end with a newline")
    delimiter = max(DELIMITERS, key=bare.count)
    try:
        cells = next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise StreamError(f"{file}: the header cannot be read: {error}") from error
    names, twice = column_names(cell.strip() for cell in cells)
    if twice is not None:
        raise StreamError(f"{file}: the header names the column {twice!r} twice")
    return names, delimiter


def _first_line(reader: LineReader, file: str) -> bytes:
    for _ in range(MAX_BLANK_LINES):
        line = reader.read_line()
        if not line:
            raise StreamError(f"{file}: is empty, a header with column names is needed")
        if line.strip(BLANK):
            while line.count(b'"') % 2 and len(line) <= LONGEST and (more := reader.read_line()):
                line += more
            return line
    raise StreamError(f"{file}: the first {MAX_BLANK_LINES:,} lines are blank, a header with column names is needed")


def _decoded(line: bytes, file: str) -> str:
    if len(line) > LONGEST:
        raise StreamError(f"{file}: the header is longer than {LONGEST:,} bytes, or a quote in it is never closed")
    if b"\0" in line:
        raise StreamError(f"{file}: the header holds a NUL byte")
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise StreamError(
            f"{file}: the header is not UTF-8 text ({error.reason} at byte {error.start}); "
            "--encoding names another encoding"
        ) from error
