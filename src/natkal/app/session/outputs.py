"""Files a run appends to, so that a run that was killed can cut them back to its checkpoint and go on."""

import contextlib
import os
from pathlib import Path

from natkal.tabular.errors import StreamError


class Appender:
    """A file that grows; `length` bytes of it belong to the run so far, and what is behind them is cut off."""

    def __init__(self, path: Path, length: int = 0, first: str = ""):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("r+b" if length else "wb")
            if length:
                if os.fstat(self._file.fileno()).st_size < length:
                    raise StreamError(f"{path}: is shorter than the checkpoint says; it cannot be continued")
                self._file.truncate(length)
                self._file.seek(length)
        except OSError as error:
            raise StreamError(f"{path}: cannot be written: {error.strerror or error}") from error
        self.length = length
        if first and not length:
            self.write(first)

    def write(self, text: str) -> None:
        """Append."""
        data = text.encode()
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failed(error) from error
        self.length += len(data)

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
