"""SIGINT and SIGTERM: a clean end where there is time for one, an end within two seconds whatever the process does.

Python runs a signal's handler between two of its own instructions. A compilation or a compiled loop is one instruction,
so a handler alone may wait for minutes. `watch` starts a thread that the system tells of a signal directly: it gives
the main thread `GRACE_SECONDS` to end by itself and then ends the process. A main thread that has seen the signal by
then, and is writing its last checkpoint, has `CLOSING_SECONDS`. A second signal ends the process at once. Checkpoints
are replaced whole (`runs/checkpoint.py`), so an end at any moment leaves one to resume from.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 1.5
"""Time after the first signal for the main thread to see it."""
CLOSING_SECONDS = 10.0
"""Time after the first signal for a main thread that has seen it to write a large checkpoint."""

_seen = threading.Event()

_last_words: list[Callable[[int], str]] = []
"""What to say where the process ends without a clean end; the last one counts."""


def watch() -> None:
    """End this process within two seconds of a signal. For a process of its own: call it once, from the main thread."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in SIGNALS:
        signal.signal(number, _leave)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_end_on_signals, args=(reader,), daemon=True, name="signals").start()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end_on_signals(reader: int) -> None:
    timer: threading.Timer | None = None
    while True:
        for number in os.read(reader, 64):
            if number not in SIGNALS:
                continue
            if timer is not None:
                os._exit(128 + number)
            timer = threading.Timer(GRACE_SECONDS, _end_unless_closing, (number,))
            timer.daemon = True
            timer.start()


def _end_unless_closing(number: int) -> None:
    """Say the last words and end, without waiting for a main thread that has not seen the signal."""
    if _seen.is_set():
        time.sleep(CLOSING_SECONDS - GRACE_SECONDS)
    with contextlib.suppress(Exception):
        if _last_words:
            os.write(2, f"{_last_words[-1](number)}\n".encode())
    os._exit(128 + number)


def closing() -> None:
    """The main thread has seen the signal and is on its way out."""
    _seen.set()


@contextlib.contextmanager
def stop_on_signals(last_words: Callable[[int], str] = lambda number: "") -> Iterator[Callable[[], int | None]]:
    """Turn SIGINT and SIGTERM into a question to ask between blocks of work: the number of the signal, or None.

    A second SIGINT raises `KeyboardInterrupt`. `last_words` is printed where the question was not asked in time.
    """
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        caught.append(number)

    def asked() -> int | None:
        if caught:
            closing()
        return caught[0] if caught else None

    before = {number: signal.signal(number, note) for number in SIGNALS}
    _last_words.append(last_words)
    try:
        yield asked
    finally:
        _last_words.remove(last_words)
        for number, handler in before.items():
            signal.signal(number, handler)
