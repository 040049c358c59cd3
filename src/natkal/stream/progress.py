"""Rows, rate and loss while a stream is being learned, on standard error; plain text, so that notebooks show it too."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

INTERVAL_SECONDS = 0.5


@contextmanager
def reporter(total: int, *, shown: bool) -> Iterator[Callable[[int, Any], None]]:
    """A function of the rows done and of the log probabilities of the last of them; nothing where not `shown`."""
    if not shown:
        yield lambda done, log_prob: None
        return
    started = last = time.monotonic()
    loss, counted = 0.0, 0

    def show(done: int, log_prob: Any) -> None:
        nonlocal last, loss, counted
        if log_prob is not None:
            loss, counted = loss - float(np.sum(np.asarray(log_prob))), counted + len(log_prob)
        now = time.monotonic()
        if now - last < INTERVAL_SECONDS and done < total:
            return
        last = now
        mean = f"  log loss {loss / counted:.4f}" if counted else ""
        rate = done / max(now - started, 1e-9)
        sys.stderr.write(f"\r{done:,} of {total:,} rows  {rate:,.0f} rows/s{mean}   ")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\n")
