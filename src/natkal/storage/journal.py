"""The append-only log: every request that changed something, in the order it was learned.

A record is  length (4) | CRC-32 (4) | number (8) | kind (1) | body,  little-endian, the checksum over number, kind and
body. A segment is a file of records; its space is allocated ahead, so that a sync need not change the file's size, and
zeros follow the last record. What was being written when the process died fails its checksum and was not acknowledged.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from natkal.errors import StreamError
from natkal.storage.file import sync_folder

HEAD = struct.Struct("<II")
BODY = struct.Struct("<QB")
AHEAD_BYTES = 4 << 20
"""Space of a segment is allocated in steps of this size."""
BINARY = getattr(os, "O_BINARY", 0)
"""What Windows wants to be told of a file of bytes."""


class Record(NamedTuple):
    """One request: its number, what was asked (`work.KINDS`) and the body as it was sent."""

    number: int
    kind: int
    body: bytes


class Journal:
    """One segment that grows. Errors are `OSError`."""

    def __init__(self, path: Path):
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | BINARY, 0o600)
        self._room = 0
        self.length = 0
        self._waiting: list[bytes] = []
        self._make_room(1)
        os.fsync(self._file)
        sync_folder(path.parent)

    def add(self, record: Record) -> None:
        """One more record, to be written with the next `write`."""
        body = BODY.pack(record.number, record.kind) + record.body
        self._waiting.append(HEAD.pack(len(body), zlib.crc32(body)) + body)

    def write(self, *, sync: bool) -> None:
        """Hand all records to the system, and with `sync` to the disk."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._make_room(len(data))
        view = memoryview(data)
        while view:
            os.lseek(self._file, self.length, os.SEEK_SET)
            written = os.write(self._file, view)
            self.length += written
            view = view[written:]
        if sync:
            getattr(os, "fdatasync", os.fsync)(self._file)  # macOS and Windows have the one that does more

    def cut(self, length: int) -> None:
        """Take the records behind the first `length` bytes away."""
        self._waiting.clear()
        os.ftruncate(self._file, length)
        self.length = self._room = length
        self._make_room(1)
        os.fsync(self._file)

    def close(self) -> None:
        """No more."""
        os.close(self._file)

    def _make_room(self, needed: int) -> None:
        if self.length + needed > self._room:
            more = -(-(self.length + needed - self._room) // AHEAD_BYTES) * AHEAD_BYTES
            if hasattr(os, "posix_fallocate"):  # Linux: a full disk is found before a record is begun
                os.posix_fallocate(self._file, self._room, more)
            self._room += more


def read_records(path: Path, *, after: int) -> Iterator[Record]:
    """The whole records of a segment, which must be numbered from `after` + 1 on."""
    expected = after + 1
    with path.open("rb") as file:
        while len(head := file.read(HEAD.size)) == HEAD.size:
            length, checksum = HEAD.unpack(head)
            if length < BODY.size or length > path.stat().st_size:
                return
            body = file.read(length)
            if len(body) < length or zlib.crc32(body) != checksum:
                return
            number, kind = BODY.unpack_from(body)
            if number != expected:
                raise StreamError(f"{path}: record {number:,} follows {expected - 1:,}; the log is damaged")
            yield Record(number, kind, body[BODY.size :])
            expected += 1
