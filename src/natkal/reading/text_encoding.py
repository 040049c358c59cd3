"""Text that is not UTF-8: recognised by its first bytes and named, or transcoded where the user named it."""

import codecs
import io
import re

from natkal.errors import StreamError
from natkal.reading.lines import CHUNK, ByteStream

UTF8 = "utf-8"
BINARY = {
    b"\x1f\x8b": "is compressed by gzip: let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd: let its name end in .zst",
    b"PAR1": "is a Parquet file: let its name end in .parquet",
    b"ARROW1": "is an Arrow file: let its name end in .arrow",
    b"PK\x03\x04": "is a ZIP archive or an Excel workbook: save its table as CSV",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook: save its table as CSV",
    b"SQLite format 3": "is an SQLite database: save its table as CSV",
    b"BZh": "is compressed by bzip2: decompress it first",
    b"\xfd7zXZ": "is compressed by xz: decompress it first",
    b"%PDF": "is a PDF document",
    b"\x89PNG": "is an image",
}
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order marks; those of UTF-32 come first, as one begins like that of UTF-16."""
NUL_SHARE = 0.25
"""Text in which so many bytes are NUL, nearly all of them at even or at odd places, is UTF-16."""
FEW_LINES, FEW_SHARE = 3, 0.1
"""A text is in another encoding if the first of its lines, or three, or one in ten are not UTF-8; fewer are rejects."""
IN_A_WORD = re.compile(rb"[A-Za-z][\x80-\xff]{1,2}(?![\x80-\xff])|(?<![\x80-\xff])[\x80-\xff]{1,2}[A-Za-z]")
RUN = re.compile(rb"[\x80-\xff]{3}")


def check_utf8(head: bytes, file: str) -> None:
    """Refuse a file whose first bytes are not UTF-8 text, and say what they are and which option reads them."""
    for magic, what in BINARY.items():
        if head.startswith(magic):
            raise StreamError(f"{file}: {what}")
    encoding = _wide(head)
    if encoding:
        raise StreamError(f"{file}: is {encoding.upper()} text; --encoding {encoding} reads it")
    lines = head.split(b"\n")[:-1] or [head]
    bad = [line for line in lines if not _is_utf8(line)]
    good = sum(not line.isascii() for line in lines) - len(bad)
    few = len(bad) < min(FEW_LINES, FEW_SHARE * len(lines)) and _is_utf8(lines[0])
    if few or len(bad) <= good:
        return
    words, runs = sum(bool(IN_A_WORD.search(line)) for line in bad), sum(bool(RUN.search(line)) for line in bad)
    if 2 * words > len(bad) and words > runs:
        raise StreamError(f"{file}: is not UTF-8, it looks like Windows-1252 (Latin-1); --encoding cp1252 reads it")
    if 2 * runs > len(bad):
        raise StreamError(
            f"{file}: is not UTF-8 text; name its encoding with --encoding (cp1251, gb18030, shift_jis, ...)"
        )


def _wide(head: bytes) -> str | None:
    """UTF-16 or UTF-32, by a mark or by NUL bytes in every second place."""
    for mark, name in MARKS.items():
        if head.startswith(mark):
            return name
    start = head[:4096]
    even, odd = start[::2].count(0), start[1::2].count(0)
    if even + odd <= NUL_SHARE * len(start) or min(even, odd) * 10 > max(even, odd):
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def check_encoding(encoding: str) -> str:
    """The name in its usual form; a `StreamError` for one that Python does not know."""
    try:
        found = codecs.lookup(encoding)
        "".encode(found.name)  # raises for codecs between bytes and bytes
        codecs.getincrementaldecoder(found.name)
    except (LookupError, ValueError, UnicodeError) as error:
        raise StreamError(f"--encoding: {encoding!r} is not one of utf-8, cp1252, utf-16, gb18030, ...") from error
    return UTF8 if found.name in ("utf-8", "utf-8-sig", "ascii") else found.name


def _no_text(error: UnicodeError) -> tuple[str, int]:
    """Stand in for bytes that cannot be decoded with one that is not UTF-8 either, so that its row is rejected."""
    return "\udcff", error.end if isinstance(error, UnicodeDecodeError) else 0


codecs.register_error("natkal-no-text", _no_text)


class Transcoded(io.RawIOBase):
    """A stream of text in another encoding, as UTF-8. It cannot jump: a position is reached by reading."""

    def __init__(self, stream: ByteStream, encoding: str, file: str):
        self._stream = stream
        self._encoding = encoding
        self._file = file
        self._read = getattr(stream, "read1", stream.read)
        self._decoder = codecs.getincrementaldecoder(encoding)("natkal-no-text")
        self._ended = False

    def read1(self, size: int = CHUNK) -> bytes:
        """The next bytes, about `size` of them; none at the end."""
        while not self._ended:
            chunk = self._read(size)
            self._ended = not chunk
            try:
                text = self._decoder.decode(chunk, final=self._ended)
            except UnicodeError as error:
                raise StreamError(f"{self._file}: is not {self._encoding} text: {error}") from error
            if text:
                return text.encode("utf-8", "surrogateescape")
        return b""

    def close(self) -> None:
        """Close the stream behind it."""
        self._stream.close()
        super().close()
