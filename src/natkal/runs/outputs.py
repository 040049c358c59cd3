"""Files a run appends to, so that a run that was killed can cut them back to its checkpoint and go on."""

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from natkal.errors import StreamError
from natkal.reading.kafka.address import is_kafka
from natkal.reading.source import STDIN
from natkal.settings.settings import Settings
from natkal.tables.schema.rows import Reject, Rows


@runtime_checkable
class Output(Protocol):
    """Something a run appends to: a file, or a topic. `kept` is what its checkpoint holds of it."""

    @property
    def path(self) -> Any:
        """Where it is, for messages."""
        ...

    @property
    def kept(self) -> Any:
        """Where it ends, as JSON."""
        ...

    def cut(self) -> None:
        """Take what is behind the run's last checkpoint away; call it before anything is written."""
        ...

    def write(self, text: str) -> None:
        """Append lines that belong to no row."""
        ...

    def write_rows(self, text: str, rows: Rows, lines: np.ndarray) -> None:
        """Append one line for each of these rows of a block."""
        ...

    def write_reject(self, reject: Reject, rows: Rows) -> None:
        """Append a row of a block that cannot be used."""
        ...

    def flush(self, *, sync: bool = False) -> None:
        """Hand everything over, and with `sync` wait until it is kept."""
        ...

    def close(self) -> None:
        """No more."""
        ...


class Ends:
    """A base of what writes outputs: where each of them ends. `kept`: where it ended in the checkpoint."""

    kept: dict[str, Any] | None
    outputs: dict[str, Output]

    @property
    def ends(self) -> dict[str, Any]:
        """Where each output ends; of one that is not open, where it ended."""
        return (self.kept or {}) | {name: output.kept for name, output in self.outputs.items()}

    @ends.setter
    def ends(self, kept: dict[str, Any]) -> None:
        self.kept = kept


class Appender:
    """A file that grows; `length` bytes of it belong to the run so far, and `cut` takes off what is behind them."""

    def __init__(self, path: Path, length: int = 0, first: str = ""):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            self._size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise StreamError(f"{path}: cannot be written: {error.strerror or error}") from error
        if self._size < length:
            raise StreamError(f"{path}: is shorter than the checkpoint says; it cannot be continued")
        self.length = length
        self._first = first

    def cut(self) -> None:
        """Leave what belongs to the run, or the first line of a new file."""
        try:
            if self._size > self.length:
                self._file.truncate(self.length)
        except OSError as error:
            raise self._failed(error) from error
        if self._first and not self.length:
            self.write(self._first)

    def write(self, text: str) -> None:
        """Append."""
        data = text.encode()
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failed(error) from error
        self.length += len(data)

    @property
    def kept(self) -> int:
        """Bytes that belong to the run."""
        return self.length

    def write_rows(self, text: str, rows: Rows, lines: np.ndarray) -> None:
        """Append one line for each row."""
        self.write(text)

    def write_reject(self, reject: Reject, rows: Rows) -> None:
        """Append a reject as JSON."""
        self.write(json.dumps(reject._asdict(), ensure_ascii=False) + "\n")

    def flush(self, *, sync: bool = False) -> None:
        """Hand everything to the system, and with `sync` to the disk."""
        try:
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """No more. What could not be written by now is behind the last checkpoint, and not missed."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _failed(self, error: OSError) -> StreamError:
        return StreamError(
            f"{self.path}: cannot be written ({error.strerror or error}); the last checkpoint is kept, --resume goes on"
        )


def places(
    settings: Settings, folder: Path, inputs: Iterable[str], names: Iterable[str]
) -> tuple[dict[str, Path], dict[str, str]]:
    """The files and the topics of a run's outputs, by name; predictions only where they were asked for."""
    in_folder = {"rejects": "rejects.jsonl", "metrics": "metrics.csv", "forecasts": "forecasts.csv"}
    files: dict[str, Path] = {}
    topics: dict[str, str] = {}
    for name in names:
        place = getattr(settings, name, None)
        if place and is_kafka(place):
            topics[name] = place
        elif place or name in in_folder:
            files[name] = Path(place) if place else folder / in_folder[name]
    data = {Path(name).resolve() for name in inputs if name != STDIN and not is_kafka(name)}
    for name, path in files.items():
        if path.resolve() in data:
            raise StreamError(f"{path}: is the data itself; name another file for the {name}")
    return files, topics


def csv_line(cells: Sequence[str]) -> str:
    """One line of CSV, quoted where a cell holds a comma."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
