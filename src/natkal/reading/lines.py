"""Bytes into whole lines, in bounded memory: a line of 100 MB costs its own length in reading and nothing to keep."""

import codecs
import gzip
import zlib
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from natkal.errors import StreamError

FIRST, CHUNK = 1 << 16, 1 << 20
"""Bytes read at a time: little at first, when only a look at the columns is wanted, then more."""
LONGEST = 1 << 20
"""The longest line that is read as a row; a longer one is a reject."""


@runtime_checkable
class ByteStream(Protocol):
    """A file, a pipe, or a decompressor over one."""

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes; none at the end."""
        ...

    def seekable(self) -> bool:
        """Whether it can jump."""
        ...

    def seek(self, offset: int, /) -> int:
        """Jump."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class LineBlock(NamedTuple):
    """Whole lines, the number of the first, and the offset after them; `overlong` marks one line that was dropped."""

    data: bytes
    line: int
    end: int
    overlong: bool


class LineReader:
    """Whole lines from a binary stream, whatever sizes it is read in. The longest that is kept has `LONGEST` bytes."""

    def __init__(self, stream: ByteStream, name: str = "the stream"):
        self._stream = stream
        self._name = name
        self._rest = b""
        self._offset = 0
        self._line = 1
        self._ended = False
        self._chunk = FIRST

    def read(self) -> LineBlock | None:
        """The next lines, or None at the end."""
        while True:
            newline = self._rest.find(b"\n")
            if newline > LONGEST:
                return self._drop(newline + 1)
            if newline >= 0:
                return self._take(self._rest.rfind(b"\n") + 1)
            if len(self._rest) > LONGEST:
                return self._discard()
            if self._ended:
                return self._take(len(self._rest)) if self._rest else None
            self._fill()

    def put_back(self, block: LineBlock, used: int, lines: int, *, more: bool) -> bool:
        """Un-read the last block but for its first `used` bytes, which hold `lines` lines.

        With `more`, read on behind it first; False, and nothing is changed, where the stream has no more.
        """
        if more and not self._fill():
            return False
        self._rest = block.data[used:] + self._rest
        self._offset -= len(block.data) - used
        self._line = block.line + lines
        return True

    def peek(self) -> bytes:
        """The bytes that come next, up to the first that is not blank and at least one read, without taking them."""
        while not self._rest.strip() and len(self._rest) <= LONGEST and self._fill():
            pass
        return self._rest

    def read_bytes(self) -> bytes:
        """The bytes that come next, whatever lines they hold; empty at the end of the stream."""
        if self._rest or self._fill():
            data, self._rest = self._rest, b""
            self._offset += len(data)
            return data
        return b""

    def skip_mark(self) -> None:
        """Leave out a byte order mark at the start of the text."""
        if self._rest.startswith(codecs.BOM_UTF8):
            self._rest = self._rest[len(codecs.BOM_UTF8) :]
            self._offset += len(codecs.BOM_UTF8)

    def read_line(self) -> bytes:
        """The next line alone, with its end; empty at the end of the stream."""
        while b"\n" not in self._rest and len(self._rest) <= LONGEST and self._fill():
            pass
        size = self._rest.find(b"\n") + 1 or len(self._rest)
        return self._take(size).data

    def skip_to(self, offset: int, line: int) -> None:
        """Go on from a later place, reached by reading (a compressed stream cannot jump) or by a jump where it can."""
        ahead = offset - self._offset
        if ahead > len(self._rest) and self._stream.seekable() and not isinstance(self._stream, gzip.GzipFile):
            self._stream.seek(offset)
            self._rest = b""
        else:
            while len(self._rest) < ahead:
                ahead -= len(self._rest)
                self._rest = b""
                if not self._fill():
                    break
            self._rest = self._rest[ahead:]
        self.stand_at(offset, line)

    def stand_at(self, offset: int, line: int) -> None:
        """Count offsets and lines from here on as if this much had been read."""
        self._offset = offset
        self._line = line

    @property
    def line(self) -> int:
        """The number of the next line."""
        return self._line

    @property
    def offset(self) -> int:
        """How many bytes have been taken."""
        return self._offset

    def _fill(self) -> bool:
        read = getattr(self._stream, "read1", self._stream.read)
        try:
            chunk = read(min(self._chunk, CHUNK))
        except (OSError, EOFError, zlib.error) as error:
            raise StreamError(f"{self._name}: cannot be read behind line {self._line:,}: {error}") from error
        if not chunk:
            self._ended = True
            return False
        self._chunk = min(2 * self._chunk, CHUNK)
        self._rest += chunk
        return True

    def _take(self, size: int) -> LineBlock:
        data, self._rest = self._rest[:size], self._rest[size:]
        first = self._line
        # NumPy counts four times faster than bytes.count, which is made for rare bytes.
        self._line += int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n"))) or 1
        self._offset += size
        return LineBlock(data=data, line=first, end=self._offset, overlong=False)

    def _drop(self, size: int) -> LineBlock:
        first = self._line
        self._rest = self._rest[size:]
        self._line += 1
        self._offset += size
        return LineBlock(data=b"", line=first, end=self._offset, overlong=True)

    def _discard(self) -> LineBlock:
        """Read on to the end of a line that is too long, keeping none of it."""
        while True:
            newline = self._rest.find(b"\n")
            if newline >= 0:
                return self._drop(newline + 1)
            self._offset += len(self._rest)
            self._rest = b""
            if not self._fill():
                return self._drop(0)
