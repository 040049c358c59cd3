"""Reading in a thread of its own, some way ahead of what is being learned."""

import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from natkal.tables.schema.rows import Rows

ROOM = 64 << 20
"""Bytes of rows that may wait to be taken: enough to read through while a program compiles."""
CELL = 64
"""About what a cell takes that is a Python object."""


class Ahead:
    """The blocks that `read` gives, in their order; what it raises is raised where its block would have been."""

    def __init__(self, read: Callable[[], Rows | None]):
        self._read = read
        self._waiting: deque[Rows | Exception | None] = deque()
        self._held = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="reader", daemon=True)
        self._thread.start()

    def next(self) -> Rows | None:
        """The next block, or None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            rows = self._waiting[0]
            if isinstance(rows, Rows):
                self._waiting.popleft()
                self._held -= _bytes(rows)
                self._changed.notify_all()
        if isinstance(rows, Exception):
            raise rows
        return rows

    def close(self) -> None:
        """Read no further."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        rows: Rows | Exception | None
        while True:
            try:
                rows = self._read()
            except Exception as error:
                rows = error
            with self._changed:
                self._waiting.append(rows)
                self._changed.notify_all()
                if not isinstance(rows, Rows):
                    return
                self._held += _bytes(rows)
                self._changed.wait_for(lambda: self._closed or self._held < ROOM)
                if self._closed:
                    return


def _bytes(rows: Rows) -> int:
    return sum(
        column.nbytes if isinstance(column, np.ndarray) else CELL * len(column) for column in rows.columns.values()
    )
