"""`PartitionGroup`: the partitions of a topic that a consumer group gives to this process."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from natkal.errors import StreamError
from natkal.reading.kafka.address import kafka_address
from natkal.reading.kafka.client import (
    POLL_SECONDS,
    Health,
    close_soon,
    make_consumer,
    message_of,
    need_kafka,
    partitions_of,
    read_config,
    span_of,
    start_of,
)
from natkal.reading.kafka.merge import BLOCK_MESSAGES, Buffer
from natkal.reading.kafka.messages import MessageRows
from natkal.reading.kafka.source import check_error, commit, is_end, received
from natkal.tables.schema.rows import Rows

FETCH_MESSAGES = 8 * BLOCK_MESSAGES
"""Messages taken from librdkafka at a time, of all partitions together."""


@runtime_checkable
class Owner(Protocol):
    """What is told of partitions that come and go."""

    def taken(self, partition: int) -> int | None:
        """The partition belongs to this process now; the offset of its next message, None where it has no state."""
        ...

    def given_up(self, partition: int) -> None:
        """The partition goes to another process: write down where it stands."""
        ...

    def lost(self, partition: int) -> None:
        """The partition may belong to another process already: forget it."""
        ...


class PartitionGroup:
    """A member of a consumer group. `read` gives rows of single partitions; `owner` hears of changes inside it.

    Partitions are handed over one by one (cooperative rebalancing): those that stay are read on. With `until_end` the
    ends are those at the start of this process.
    """

    def __init__(self, address: str, group: str, owner: Owner, *, until_end: bool, config: str | None):
        self._address = kafka_address(address)
        self._kafka = need_kafka(str(self._address))
        self._owner = owner
        self._health = Health()
        self._messages = MessageRows()
        self._buffers: dict[int, Buffer] = {}
        self._closing = False
        self._failed: StreamError | None = None
        changes = {"partition.assignment.strategy": "cooperative-sticky"}
        self._consumer = make_consumer(self._address, group, read_config(config), self._health, **changes)
        try:
            found = partitions_of(self._consumer, self._address, self._health)
            self._ends = {one: span_of(self._consumer, self._address, one)[1] for one in found} if until_end else {}
            self._consumer.subscribe(
                [self._address.topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
            )
        except StreamError:
            self.close()
            raise

    @property
    def done(self) -> bool:
        """Whether this process has partitions and all of them are at their end.

        One without any waits: it gets the partitions of a member that ends, and sees that they are at their end.
        """
        return bool(self._ends) and bool(self._buffers) and all(one.done for one in self._buffers.values())

    def finished(self, partition: int) -> bool:
        """Whether the partition's last message was given."""
        buffer = self._buffers.get(partition)
        return buffer is not None and buffer.done

    def read(self) -> Iterator[Rows]:
        """The messages that have come, each block of one partition; none where nothing comes for a while."""
        until = time.monotonic() + POLL_SECONDS
        while True:
            found = received(self._consumer, POLL_SECONDS / 4)
            if found and len(found) >= BLOCK_MESSAGES:
                found += self._consumer.consume(FETCH_MESSAGES - len(found), 0)
            if self._failed is not None:
                raise self._failed
            for message in found:
                self._sort(message)
            if found or self.done or time.monotonic() >= until:
                break
        self._health.check(str(self._address), lambda: self._consumer.list_topics(timeout=POLL_SECONDS))
        live = len(found) < BLOCK_MESSAGES
        for partition in list(self._buffers):
            buffer = self._buffers.get(partition)
            if buffer is not None and buffer.waiting:
                messages = list(buffer.waiting)
                buffer.waiting.clear()
                for first in range(0, len(messages), BLOCK_MESSAGES):
                    yield self._messages.rows(messages[first : first + BLOCK_MESSAGES], live=live)

    def _sort(self, message: Any) -> None:
        error, partition = message.error(), message.partition()
        buffer = self._buffers.get(partition)
        if error is None:
            if buffer is not None:
                buffer.add(message)
        elif is_end(error):
            if buffer is not None:
                buffer.ended()
        else:
            check_error(error, f"{self._address}, partition {partition}")
        self._health.well()

    def mark(self, offsets: Mapping[str, int]) -> None:
        """Tell the group where the last checkpoints stand; natkal never asks for it."""
        commit(self._consumer, offsets)

    def close(self) -> None:
        """Leave the group. What was to be written is on disk by now: nobody is asked any more."""
        self._closing = True
        close_soon([self._consumer])

    # -- callbacks of librdkafka, which run inside `read` and `close` --------------------------------------------------

    def _assign(self, consumer: Any, places: list[Any]) -> None:
        def take() -> None:
            wanted = []
            for place in places:
                kept = self._owner.taken(place.partition)
                start, _ = start_of(consumer, self._address, place.partition, kept)
                self._buffers[place.partition] = Buffer(
                    place.topic, place.partition, start, self._ends.get(place.partition)
                )
                wanted.append(self._kafka.TopicPartition(place.topic, place.partition, start))
            consumer.incremental_assign(wanted)

        self._guarded(take)

    def _revoke(self, consumer: Any, places: list[Any]) -> None:
        def give() -> None:
            for place in places:
                if self._buffers.pop(place.partition, None) is not None and not self._closing:
                    self._owner.given_up(place.partition)

        self._guarded(give)

    def _lose(self, consumer: Any, places: list[Any]) -> None:
        for place in places:
            if self._buffers.pop(place.partition, None) is not None and not self._closing:
                self._owner.lost(place.partition)

    def _guarded(self, work: Callable[[], None]) -> None:
        """An exception inside a callback is raised by the next `read`."""
        try:
            work()
        except StreamError as error:
            self._failed = error
        except self._kafka.KafkaException as error:
            self._failed = StreamError(f"{self._address}: {message_of(error)}")
