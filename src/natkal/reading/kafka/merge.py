"""One order for the messages of several partitions: that of the log while it is read, that of arrival at its end."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

BLOCK_MESSAGES = 4096
"""The most messages of one partition that follow each other."""
MAX_BUFFERED = 4 * BLOCK_MESSAGES
"""Messages of one partition that may wait for those of others before it is paused."""
PATIENCE_SECONDS = 5.0
"""How long the others wait for a partition that delivers nothing although it has more (its broker may be down)."""


class Buffer:
    """The messages of one partition that have come and were not taken yet.

    `next` is the offset behind the last of them, `end` the offset to stop at (None: never).
    """

    def __init__(self, topic: str, partition: int, start: int, end: int | None):
        self.topic, self.partition = topic, partition
        self.start, self.next, self.end = start, start, end
        self.waiting: deque[Any] = deque()
        self.at_edge = False
        self.paused = False
        self.complete = end is not None and start >= end

    @property
    def done(self) -> bool:
        """Whether its last message was taken."""
        return self.complete and not self.waiting

    def add(self, message: Any) -> None:
        """A message that has come; one at or behind the end is left out, and so is one that came before."""
        offset = message.offset()
        if self.complete or offset < self.next:
            return
        if self.end is not None and offset >= self.end:
            self.complete = True
            return
        self.waiting.append(message)
        self.next, self.at_edge = offset + 1, False
        self.complete = self.end is not None and self.next >= self.end

    def ended(self) -> None:
        """The broker says that there is nothing more to read by now."""
        self.at_edge = True
        self.complete = self.complete or self.end is not None

    def ready(self, high: Callable[["Buffer"], int]) -> bool:
        """Whether what it has is a whole block, or all there is."""
        return (
            len(self.waiting) >= BLOCK_MESSAGES
            or self.complete
            or self.at_edge
            or (bool(self.waiting) and self.next >= high(self))
        )


class Merge:
    """Blocks of messages, always of the partition whose next message is the oldest.

    `high` gives the offset behind the last message of a partition, as far as it is known without asking the broker.
    """

    def __init__(self, buffers: Iterable[Buffer], high: Callable[[Buffer], int]):
        self.buffers = {(one.topic, one.partition): one for one in buffers}
        self._high = high
        self._moved = time.monotonic()

    @property
    def done(self) -> bool:
        """Whether every partition has come to its end."""
        return all(one.done for one in self.buffers.values())

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be taken."""
        return not any(one.waiting for one in self.buffers.values())

    def add(self, message: Any) -> None:
        """A message of any of the partitions."""
        self.buffers[message.topic(), message.partition()].add(message)

    def take(self) -> list[Any]:
        """The next block; empty where a partition that has more must be waited for, or nothing is there."""
        filled = [one for one in self.buffers.values() if one.waiting]
        if not filled:
            self._moved = time.monotonic()
            return []
        stalled = time.monotonic() - self._moved > PATIENCE_SECONDS
        if not stalled and not all(one.ready(self._high) for one in self.buffers.values()):
            return []
        oldest = min(filled, key=lambda one: (one.waiting[0].timestamp()[1], one.topic, one.partition))
        self._moved = time.monotonic()
        count = min(len(oldest.waiting), BLOCK_MESSAGES)
        return [oldest.waiting.popleft() for _ in range(count)]

    def share(self) -> float | None:
        """How much was taken, from 0 to 1; None where there is no end."""
        if any(one.end is None for one in self.buffers.values()):
            return None
        total = sum(max((one.end or 0) - one.start, 0) for one in self.buffers.values())
        taken = sum(one.next - len(one.waiting) - one.start for one in self.buffers.values())
        return min(taken / total, 1.0) if total else 1.0
