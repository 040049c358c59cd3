"""How a run gets on: rows, rate, loss and the time left, in one line of text."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from natkal.reading.source import RowSource

REMEMBERED_SECONDS = 15.0
"""The rate is that of the last seconds: compiling and a slower start do not count for ever."""
INTERVAL_SECONDS = 0.5


class Pace:
    """The line about a session, from one look to the next."""

    def __init__(self, source: RowSource, rows_before: int = 0):
        self._source = source
        self._rows_before = rows_before
        self._started = time.monotonic()
        self._looks: deque[tuple[float, int]] = deque()

    def line(self, session: Any) -> str:
        """Rows read, rows learned a second, log loss, and the time left where the length of the data is known.

        Time and rate are those of rows that have been learned, not of rows that have been read.
        """
        now, settled = time.monotonic(), session.metrics.row
        if settled and (not self._looks or settled > self._looks[-1][1]):
            self._looks.append((now, settled))
        while len(self._looks) > 2 and now - self._looks[1][0] > REMEMBERED_SECONDS:
            self._looks.popleft()
        text = f"{session.counts.read:,} rows"
        rate = self._rate(now)
        if rate:
            text += f"  {rate:,.0f} rows/s"
        losses = [part.totals["log_loss"] / part.scored for part in session.metrics.parts if part.scored]
        if losses:
            text += f"  log loss {sum(losses):.4f}"
        share = self._source.share()
        if share and rate:
            taken = session.counts.read - self._rows_before
            left = max(taken / share - (settled - self._rows_before), 0) / rate
            text += f"  {duration(left)} left"
        return text

    def _rate(self, now: float) -> float:
        """Rows learned a second: over the last seconds, or since the start as long as there was one look only."""
        if not self._looks:
            return 0.0
        if len(self._looks) == 1:
            return (self._looks[0][1] - self._rows_before) / max(now - self._started, 1e-9)
        (first, before), (_, after) = self._looks[0], self._looks[-1]
        return (after - before) / max(now - first, 1e-9)


def duration(seconds: float) -> str:
    """45 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress_line(
    source: RowSource, *, shown: bool | None = None, rows_before: int = 0
) -> Iterator[Callable[[Any], None]]:
    """A line on standard error that is written again and again; in a terminal and in a notebook, unless told."""
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules if shown is None else shown):
        yield lambda session: None
        return
    pace, last, width = Pace(source, rows_before), 0.0, 0

    def show(session: Any) -> None:
        nonlocal last, width
        if time.monotonic() - last < INTERVAL_SECONDS:
            return
        last, text = time.monotonic(), pace.line(session)
        sys.stderr.write("\r" + text.ljust(width))
        sys.stderr.flush()
        width = len(text)

    try:
        yield show
    finally:
        if width:
            sys.stderr.write("\n")
