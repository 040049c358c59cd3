"""Where rows come from: files, directories of them, compressed or not, or standard input."""

import contextlib
import gzip
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import natkal.data
from natkal.errors import StreamError, located
from natkal.reading.columnar import ArrowRows, check_same_schema, need_arrow
from natkal.reading.csv_header import read_header
from natkal.reading.csv_rows import CsvRows
from natkal.reading.json_array import JsonArrayRows
from natkal.reading.json_rows import JsonRows
from natkal.reading.kafka.address import is_kafka
from natkal.reading.lines import ByteStream, LineReader
from natkal.reading.pipe import Pipe
from natkal.reading.read_ahead import Ahead
from natkal.reading.text_encoding import UTF8, Transcoded, check_encoding, check_utf8
from natkal.tables.schema.rows import Position, Rows, printable

TEXT = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
COLUMNAR = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
STDIN = "-"
STREAMS = Path(natkal.data.__file__).parent


@runtime_checkable
class RowReader(Protocol):
    """Rows of one file, some at a time. `open_columns`: whether later rows may have other columns."""

    open_columns: bool

    def read(self) -> Rows | None:
        """The next rows, or None at the end."""
        ...


@runtime_checkable
class RowSource(Protocol):
    """Where a session's rows come from: files, a pipe, or data in memory.

    `files` are as they were given, `names` as a checkpoint keeps them. `open_columns`: whether later rows may have
    other columns. `kinds`: the kind of feature that a column's type says. `stop` is asked while waiting for rows.
    """

    files: list[str]
    open_columns: bool
    kinds: dict[str, str]
    stop: Callable[[], bool]

    @property
    def names(self) -> list[str]:
        """The files, so that they are found from any working directory."""
        ...

    def share(self) -> float | None:
        """How much of the data has been taken, from 0 to 1; None where that cannot be known."""
        ...

    def read_ahead(self, numeric: Sequence[str]) -> None:
        """From now on, read in the background where that helps; `numeric`: all columns in use, if numbers."""
        ...

    def read(self) -> Rows | None:
        """The next rows, or None at the end; a block without rows where none came for a while."""
        ...

    def mark(self, offsets: Mapping[str, int]) -> None:
        """Hear of a checkpoint, and where in each partition of a log it stands."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...


def find_files(data: Sequence[str]) -> list[str]:
    """The files that DATA names: a file, several, everything known in a directory (by name), or "-"."""
    found: list[str] = []
    for name in data:
        path = Path(name)
        if is_kafka(name):
            raise StreamError(f"{name}: a topic is read by natkal learn and nk.learn, and by itself")
        if name.startswith("@"):
            found.append(str(embedded(name[1:])))
        elif name == STDIN:
            found.append(name)
        elif path.is_dir():
            inside = sorted(str(entry) for entry in path.iterdir() if entry.is_file() and kind_of(entry) is not None)
            if not inside:
                raise StreamError(f"{name}: the directory holds no CSV, JSONL, Parquet or Arrow file")
            found.extend(inside)
        elif path.is_file():
            if kind_of(path) is None:
                known = ", ".join([*TEXT, *COLUMNAR])
                raise StreamError(f"{name}: the ending is not one of {known} (.gz or .zst may follow)")
            found.append(name)
        elif path.exists():
            found.append(name)
        else:
            raise StreamError(f"{name}: no such file or directory")
    if not found:
        raise StreamError("no data given")
    if STDIN in found and len(found) > 1:
        raise StreamError("standard input (-) cannot be combined with files")
    return found


def absolute(files: Sequence[str]) -> list[str]:
    """The files, so that they are found from any working directory."""
    return [name if name == STDIN else str(Path(name).absolute()) for name in files]


def embedded(name: str) -> Path:
    """A stream that comes with natkal."""
    path = STREAMS / f"{name}.csv.gz"
    if not path.is_file():
        known = ", ".join(sorted(f"@{entry.name.partition('.')[0]}" for entry in STREAMS.glob("*.csv.gz")))
        raise StreamError(f"@{name}: natkal comes with {known}")
    return path


def kind_of(path: Path) -> str | None:
    """csv, jsonl or columnar, by the file's ending; None if unknown."""
    inner = Path(path.stem) if path.suffix.lower() in (".gz", ".zst") else path
    if path.suffix.lower() in COLUMNAR:
        return "columnar"
    return TEXT.get(inner.suffix.lower())


class Source:
    """The rows of all files in order, as text of this encoding where they are text.

    `position` is where to begin: the start, unless a checkpoint says otherwise.
    """

    def __init__(
        self,
        files: Sequence[str],
        position: Position = Position(0, 0, 1),  # noqa: B008
        encoding: str = UTF8,
    ):
        self.files = list(files)
        self._encoding = check_encoding(encoding)
        self._position = position
        self._given = position
        self._numeric: Sequence[str] = ()
        self._ahead: Ahead | None = None
        self._reader: RowReader | None = None
        self._stream: ByteStream | None = None
        self.stop: Callable[[], bool] = lambda: False
        """Whether to give up waiting for standard input."""
        self.columns: list[str] | None = None
        """The columns of the first file, where its header or schema names them."""
        self.open_columns = False
        """Whether other columns may appear later; on standard input, known once a row was read."""
        self.kinds: dict[str, str] = {}
        """The kind of feature that a column's type says; cells of text say nothing beyond themselves."""
        plain = all(Path(name).is_file() and Path(name).suffix.lower() in TEXT for name in files)
        self._sizes = [Path(name).stat().st_size for name in files] if plain and self._encoding == UTF8 else []
        self._check()

    @property
    def names(self) -> list[str]:
        """The files, so that they are found from any working directory."""
        return absolute(self.files)

    def share(self) -> float | None:
        """How much of the data has been taken, from 0 to 1; None where that cannot be known (pipes, compression)."""
        if not self._sizes:
            return None
        done = sum(self._sizes[: self._given.file])
        return (done + self._given.offset) / max(sum(self._sizes), 1)

    def read_ahead(self, numeric: Sequence[str]) -> None:
        """From now on, where all are plain files, read in the background. `numeric`: all columns in use, if numbers."""
        if self._ahead is not None:
            return
        self._numeric = numeric
        if isinstance(self._reader, CsvRows):
            self._reader.numeric = numeric
        if all(Path(name).is_file() for name in self.files):
            self._ahead = Ahead(self._read)

    def read(self) -> Rows | None:
        """The next rows, or None after the last file."""
        rows = self._read() if self._ahead is None else self._ahead.next()
        if rows is not None:
            self._given = rows.position
        return rows

    def _read(self) -> Rows | None:
        while self._position.file < len(self.files):
            try:
                with located(self._where):
                    if self._reader is None:
                        self._reader = self._open(self._position)
                    rows = self._reader.read()
            except StreamError:
                self._let_go()
                raise
            if rows is not None:
                self._position = rows.position
                return rows
            self._let_go()
            self._position = Position(self._position.file + 1, 0, 1)
        return None

    def mark(self, offsets: Mapping[str, int]) -> None:
        """Nothing to do: files are read on at a position."""

    def _where(self) -> str:
        return f"{printable(self.files[self._position.file])}: cannot be read behind line {self._position.line:,}"

    def close(self) -> None:
        """Read no more."""
        if self._ahead is not None:
            self._ahead.close()
        self._let_go()

    def _let_go(self) -> None:
        """Close the file that is open."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._reader = None, None

    def _open(self, position: Position) -> RowReader:
        path = Path(self.files[position.file])
        name = printable(str(path)) if str(path) != STDIN else STDIN
        if kind_of(path) == "columnar":
            return ArrowRows(path, position.file, position.offset)
        live = name == STDIN
        self._stream = Pipe(lambda: self.stop()) if live else open_text(path)
        reader, head = self._text(self._stream, name)
        kind = kind_of(path)
        rows: RowReader
        if kind == "csv" or (kind is None and head[:1] not in (b"{", b"[")):
            names, delimiter = read_header(reader, name)
            rows = CsvRows(reader, names, delimiter, name, position.file)
            rows.numeric = self._numeric
        elif head.startswith(b"[") or head.partition(b"\n")[0].strip() == b"{":
            rows = JsonArrayRows(reader, name, position.file)
        else:
            rows = JsonRows(reader, name, position.file)
        self.open_columns = self.open_columns or rows.open_columns
        if position.offset and not live:
            reader.skip_to(position.offset, position.line)
        elif position.offset:
            reader.stand_at(position.offset, position.line)
        return rows

    def _text(self, stream: ByteStream, name: str) -> tuple[LineReader, bytes]:
        """A reader of UTF-8 text behind a byte order mark, and its first bytes that are not blank."""
        reader = LineReader(stream if self._encoding == UTF8 else Transcoded(stream, self._encoding, name), name)
        if self._encoding == UTF8:
            check_utf8(reader.peek(), name)
        reader.peek()
        reader.skip_mark()
        return reader, reader.peek().lstrip()

    def _check(self) -> None:
        """Read every file's header or schema, so that a wrong one stops the run before the first row."""
        arrow: ArrowRows | None = None
        for number, file in enumerate(self.files):
            path, name = Path(file), printable(file)
            if file == STDIN or not path.is_file():
                continue
            kind = kind_of(path)
            with located(lambda name=name: f"{name}: cannot be read"):
                if kind == "columnar":
                    rows = ArrowRows(path, number)
                    arrow = arrow or rows
                    check_same_schema(arrow, rows)
                    self.columns = self.columns or rows.names
                elif kind == "csv":
                    with contextlib.closing(open_text(path)) as stream:
                        names, _ = read_header(self._text(stream, name)[0], name)
                    self.columns = self.columns or names
                    missing = [column for column in self.columns if column not in names]
                    if missing:
                        raise StreamError(f"{name}: has no column {missing[0]!r}, which {printable(self.files[0])} has")
                else:
                    self.open_columns = True


def open_text(path: Path) -> ByteStream:
    """The file's text as bytes, decompressed by its ending."""
    try:
        if path.suffix.lower() == ".gz":
            return gzip.open(path, "rb")  # pyright: ignore[reportReturnType]
        if path.suffix.lower() == ".zst":
            return need_arrow(str(path)).input_stream(str(path), compression="zstd")
        return path.open("rb")
    except OSError as error:
        raise StreamError(f"{path}: cannot be opened: {error.strerror or error}") from error
