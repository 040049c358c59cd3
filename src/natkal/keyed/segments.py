"""Records of one size on disk: appended, never changed, read by place; see this folder's README."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from natkal.storage.file import StorageError, array_digest, sync_folder

SEGMENT_BYTES = 64 << 20
"""Size of a segment; one that is not full is kept in memory until a save."""
MOSTLY_DEAD = 0.5
"""A segment of which less than this share is still in use is written again."""


class Segments:
    """Records (n, `width`) of bytes in a folder, each found by its segment and its row."""

    def __init__(self, folder: Path, width: int):
        self.folder, self.width = folder, width
        self.capacity = max(SEGMENT_BYTES // max(width, 1), 1)
        self.live: dict[int, int] = {}
        """How many records of each segment are in use."""
        self._sizes: dict[int, int] = {}
        self._digests: dict[int, str] = {}
        self._open = np.empty((self.capacity, width), np.uint8)
        self._filled = 0
        self._number = 0

    def append(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Segment and row of each record."""
        segments, rows = np.empty(len(records), np.int32), np.empty(len(records), np.int32)
        done = 0
        while done < len(records):
            taken = min(len(records) - done, self.capacity - self._filled)
            part = slice(done, done + taken)
            self._open[self._filled : self._filled + taken] = records[part]
            segments[part], rows[part] = self._number, np.arange(self._filled, self._filled + taken)
            self.live[self._number] = self.live.get(self._number, 0) + taken
            self._filled += taken
            done += taken
            if self._filled == self.capacity:
                self.close()
        return segments, rows

    def read(self, segments: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The records (n, width) at these places."""
        records = np.empty((len(segments), self.width), np.uint8)
        for segment in np.unique(segments):
            own = np.flatnonzero(segments == segment)
            own = own[np.argsort(rows[own])]  # in the order of the file
            records[own] = self._records(int(segment))[rows[own]]
        return records

    def drop(self, segments: np.ndarray) -> None:
        """One record of each of these segments is not used any more."""
        for segment, count in zip(*np.unique(segments, return_counts=True), strict=True):
            self.live[int(segment)] -= int(count)

    def close(self) -> None:
        """Write the open segment, as far as it is filled."""
        if not self._filled:
            return
        records = self._open[: self._filled]
        path = self._path(self._number)
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            np.save(file, records, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self._digests[self._number] = array_digest(records)
        self._sizes[self._number] = self._filled
        self._number, self._filled = self._number + 1, 0

    def mostly_dead(self) -> list[int]:
        """The written segments that hold few records in use, and some."""
        return [number for number, size in self._sizes.items() if 0 < self.live[number] < MOSTLY_DEAD * size]

    def header(self) -> dict[str, Any]:
        """The segments that are in use, for a manifest; all are on disk."""
        sync_folder(self.folder)
        used = sorted(number for number in self._sizes if self.live[number] > 0)
        return {
            "next": self._number,
            "width": self.width,
            "segments": {
                str(number): [self._sizes[number], self.live[number], self._digests[number]] for number in used
            },
        }

    def clean(self) -> None:
        """Delete the files of segments that no manifest names: call it once one is written."""
        for number in [number for number in self._sizes if self.live[number] <= 0]:
            del self._sizes[number], self._digests[number], self.live[number]
        kept = {self._path(number).name for number in self._sizes}
        for path in self.folder.glob("segment-*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    @classmethod
    def restored(cls, folder: Path, header: Mapping[str, Any], *, check: bool = True) -> "Segments":
        """The segments that a manifest names; with `check`, each against its digest."""
        made = cls(folder, int(header["width"]))
        made._number = int(header["next"])
        for text, (size, live, digest) in header["segments"].items():
            number = int(text)
            made._sizes[number], made.live[number], made._digests[number] = int(size), int(live), str(digest)
            records = made._records(number)
            if records.shape != (size, made.width) or records.dtype != np.uint8:
                raise StorageError(f"{made._path(number)}: has shape {records.shape}, not {(size, made.width)}")
            if check and array_digest(records) != digest:
                raise StorageError(f"{made._path(number)}: damaged, its SHA-256 is not the one it was written with")
        return made

    def _records(self, segment: int) -> np.ndarray:
        if segment == self._number:
            return self._open
        path = self._path(segment)
        try:  # mapped for this call alone: pages that stay mapped would count as memory in use
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error

    def _path(self, number: int) -> Path:
        return self.folder / f"segment-{number:06d}.npy"
