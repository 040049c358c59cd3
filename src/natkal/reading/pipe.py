"""Standard input, read as it comes, and left when the user asks to stop."""

import io
import os
import select
import sys
from collections.abc import Callable

from natkal.errors import Stopped

PATIENCE = 0.2
"""Seconds between two looks at whether to stop, while nothing comes."""


class Pipe(io.RawIOBase):
    """Whatever has arrived, up to a limit; waits where nothing has, and raises `Stopped` if told to end then."""

    def __init__(self, stop: Callable[[], bool]):
        self._stop = stop
        try:
            self._handle = sys.stdin.fileno() if sys.platform != "win32" else None  # select there takes sockets alone
        except (OSError, ValueError):  # not a real file, as in tests
            self._handle = None

    def read1(self, size: int = -1) -> bytes:
        """At most `size` bytes; none at the end."""
        if self._handle is None:
            return sys.stdin.buffer.read1(size)  # pyright: ignore[reportAttributeAccessIssue]
        while not select.select([self._handle], [], [], PATIENCE)[0]:
            if self._stop():
                raise Stopped
        return os.read(self._handle, size)
