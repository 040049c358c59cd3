"""The body of a request as rows: one object, an array of objects, or JSON lines; a sentence for anything else."""

from typing import Any

import orjson

from natkal.reading.json_rows import parse

LONGEST_ID = 200
"""Characters of an id."""


class Refused(Exception):
    """A request that cannot be served: the HTTP status and the sentence that says why."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status
        self.reason = reason


def read_rows(body: bytes, most: int) -> tuple[list[dict[str, Any]], bool]:
    """The rows of a body, and whether it is a single object; at most so many rows."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = _careful(body)
        if isinstance(found, str):
            return _lines(body, most, found), False
    single = isinstance(found, dict)
    rows = [found] if single else found
    if not isinstance(rows, list):
        raise Refused(422, f"the body is a JSON {type(found).__name__}, not a row (an object) or a list of rows")
    if not rows:
        raise Refused(422, "the body holds no row")
    if len(rows) > most:
        raise Refused(413, f"{len(rows):,} rows in one request; at most {most:,} are taken")
    # a key that stands twice leaves more colons than keys; the careful reader then says whether that is so
    keys = 0
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise Refused(422, f"row {number:,}: is a JSON {type(row).__name__}, not an object")
        keys += len(row)
    colons = body.count(b":")
    if (colons != keys and colons != keys + _colons(rows)) or b"\\u" in body:
        reason = _careful(body)
        if isinstance(reason, str):
            raise Refused(422, reason)
    return rows, single


def _colons(rows: list[dict[str, Any]]) -> int:
    """How many colons stand in the names and cells of these rows: each time of day has some."""
    return sum(text.count(":") for row in rows for pair in row.items() for text in pair if isinstance(text, str))


def _careful(body: bytes) -> Any:
    """The value of the body, or what is wrong with it in the words of `natkal learn`."""
    if body.lstrip()[:1] != b"[":
        return parse(body)
    found = parse(b'{"rows":' + body + b"}")
    return found if isinstance(found, str) else found["rows"]


def _lines(body: bytes, most: int, reason: str) -> list[dict[str, Any]]:
    """JSON lines; `reason` is what is wrong with the body where it is not that."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if not lines:
        raise Refused(422, "the body holds no row")
    if len(lines) == 1 or lines[0].lstrip()[:1] == b"[":
        raise Refused(422, reason)
    if len(lines) > most:
        raise Refused(413, f"{len(lines):,} rows in one request; at most {most:,} are taken")
    rows = []
    for number, line in enumerate(lines, 1):
        row = parse(line)
        if isinstance(row, str):
            raise Refused(422, f"row {number:,}: {row}")
        rows.append(row)
    return rows


def read_id(value: Any) -> str:
    """An id: text or a whole number, not too long."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Refused(422, f"the id {value!r:.60} is neither text nor a whole number")
    text = str(value)
    if not text or len(text) > LONGEST_ID:
        raise Refused(422, f"an id has 1 to {LONGEST_ID} characters, this one {len(text):,}")
    return text
