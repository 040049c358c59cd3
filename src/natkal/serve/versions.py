"""Numbered checkpoints of a served run, and the log segment that begins with each.

    RUN/versions/000007.nk    checkpoint 7          RUN/versions/000007.log    what was learned after it

A checkpoint's header has the field `served`: its number, the last record it contains, when it was written, and the
number it was rolled back to, if it was.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natkal.errors import CheckpointError, StreamError
from natkal.runs import checkpoint
from natkal.storage.file import write_file
from natkal.storage.journal import Journal, Record, read_records

FOLDER = "versions"


class Version(NamedTuple):
    """A checkpoint that can be gone back to."""

    number: int
    record: int
    rows: int
    time: float
    rolled_back_to: int | None

    def to_json(self) -> dict[str, Any]:
        """For answers."""
        return self._asdict()


class Versions:
    """The checkpoints and log segments of one run."""

    def __init__(self, run: Path, keep: int):
        self.run = run
        self.folder = run / FOLDER
        self.keep = keep
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob("*.tmp"):
            left.unlink()

    def numbers(self, ending: str = "nk") -> list[int]:
        """The numbers of all checkpoints (or of log segments), in order."""
        return sorted(int(path.stem) for path in self.folder.glob(f"*.{ending}") if path.stem.isdecimal())

    def path(self, number: int, ending: str = "nk") -> Path:
        """The file of a checkpoint (or of a log segment)."""
        return self.folder / f"{number:06d}.{ending}"

    def following(self) -> int:
        """The number of the next checkpoint."""
        return max([0, *self.numbers(), *self.numbers("log")]) + 1

    def newest(self) -> tuple[int, dict[str, Any], dict[str, np.ndarray]] | None:
        """The newest whole checkpoint."""
        damaged: CheckpointError | None = None
        for number in reversed(self.numbers()):
            try:
                return number, *self.read(number)
            except CheckpointError as error:
                damaged = damaged or error
        if damaged is not None:
            raise damaged
        return None

    def read(self, number: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A checkpoint by its number."""
        header, arrays = checkpoint.read(self.path(number))
        served = header.get("served")
        if not isinstance(served, dict) or served.get("number") != number:
            raise CheckpointError(f"{self.path(number)}: is not checkpoint {number}")
        version_of(header)
        return header, arrays

    def records_after(self, number: int, record: int) -> Iterator[Record]:
        """What was acknowledged after a checkpoint, from its own segment and those that follow it."""
        for segment in self.numbers("log"):
            if segment >= number:
                for found in read_records(self.path(segment, "log"), after=record):
                    record = found.number
                    yield found

    def journal(self, number: int) -> Journal:
        """The empty segment that begins with a checkpoint."""
        path = self.path(number, "log")
        if path.exists():
            raise StreamError(f"{path}: exists already")
        return Journal(path)

    def write(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write a checkpoint, whole or not at all; make it the run's own too; remove those that are too old."""
        number = int(header["served"]["number"])
        path = self.path(number)
        write_file(path, header, arrays)
        linked = self.run / checkpoint.NEXT
        linked.unlink(missing_ok=True)
        os.link(path, linked)
        os.replace(linked, self.run / checkpoint.CURRENT)
        (self.run / checkpoint.PREVIOUS).unlink(missing_ok=True)
        kept = self.numbers()[-self.keep :]
        for ending in ("nk", "log"):
            for old in self.numbers(ending):
                if old < kept[0]:
                    self.path(old, ending).unlink(missing_ok=True)


def version_of(header: Mapping[str, Any]) -> Version:
    """What a header says of its checkpoint; every field is checked."""
    served = header["served"]
    back = served.get("rolled_back_to")
    fields = (served.get("number"), served.get("record"), served.get("rows"), 0 if back is None else back)
    if not all(isinstance(field, int) and field >= 0 for field in fields) or not isinstance(served.get("time"), float):
        raise CheckpointError(f"checkpoint {served.get('number')!r}: its header lacks what a served run needs")
    return Version(served["number"], served["record"], served["rows"], served["time"], back)
