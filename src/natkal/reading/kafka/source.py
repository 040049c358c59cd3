"""`KafkaSource`: all partitions of a topic, and of a topic of labels, read by this process alone."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from natkal.errors import StreamError
from natkal.reading.kafka.address import KafkaAddress, kafka_address, topic_beside
from natkal.reading.kafka.client import (
    POLL_SECONDS,
    Health,
    close_soon,
    make_consumer,
    need_kafka,
    partitions_of,
    read_config,
    start_of,
)
from natkal.reading.kafka.merge import BLOCK_MESSAGES, MAX_BUFFERED, Buffer, Merge
from natkal.reading.kafka.messages import MessageRows, no_rows, partition_name
from natkal.reading.read_ahead import Ahead
from natkal.tables.schema.rows import Rows


class KafkaSource:
    """The rows of a topic, from the offsets of a checkpoint on, or from the first message that the broker has.

    Args:
        address: kafka://BROKER/TOPIC.
        offsets: The next message of each partition, by its name; what a group has committed is not asked for.
        until_end: Stop at the offsets that are last now.
        group: Under which name offsets are committed, for those who watch the lag.
        config: A file of settings for the client.
        label_topic: A topic of labels, read along: an address, or a topic on the same brokers.
        label_columns: The columns to take from its messages.
    """

    def __init__(
        self,
        address: str,
        *,
        offsets: Mapping[str, int] | None = None,
        until_end: bool = False,
        group: str = "natkal",
        config: str | None = None,
        label_topic: str | None = None,
        label_columns: Sequence[str] = (),
    ):
        data = kafka_address(address)
        need_kafka(str(data))
        self.files = [str(data)]
        self.names = [str(data)]
        self.open_columns = True
        self.kinds: dict[str, str] = {}
        self.stop: Callable[[], bool] = lambda: False
        self._ahead: Ahead | None = None
        self._health = Health()
        self._messages = MessageRows(label_columns)
        self._labels = None if label_topic is None else topic_beside(data, label_topic)
        if self._labels is not None and self._labels.brokers != data.brokers:
            raise StreamError(f"--label-topic {self._labels}: must be on the brokers of the data, {data.brokers}")
        if self._labels is not None and self._labels.topic == data.topic:
            raise StreamError(f"--label-topic {self._labels}: is the data itself; labels in it need --id alone")
        self._data = data
        self._consumer = make_consumer(data, group, read_config(config), self._health)
        try:
            topics = [data] if self._labels is None else [data, self._labels]
            self._merge = Merge(self._begin(topics, offsets or {}, until_end), self._high)
        except StreamError:
            self.close()
            raise

    def _begin(self, topics: Sequence[KafkaAddress], offsets: Mapping[str, int], until_end: bool) -> list[Buffer]:
        kafka = need_kafka(str(self._data))
        buffers = []
        for topic in topics:
            for partition in partitions_of(self._consumer, topic, self._health):
                kept = offsets.get(partition_name(topic.topic, partition))
                start, high = start_of(self._consumer, topic, partition, kept)
                buffers.append(Buffer(topic.topic, partition, start, high if until_end else None))
        wanted = [one for one in buffers if not one.complete]
        self._consumer.assign([kafka.TopicPartition(one.topic, one.partition, one.next) for one in wanted])
        return buffers

    def _high(self, buffer: Buffer) -> int:
        """The offset behind a partition's last message, as the last answer of its broker had it."""
        kafka = need_kafka(str(self._data))
        found = self._consumer.get_watermark_offsets(kafka.TopicPartition(buffer.topic, buffer.partition), cached=True)
        return buffer.next + 1 if found is None or found[1] < 0 else found[1]

    def share(self) -> float | None:
        """How much of the messages has been taken, from 0 to 1; None where there is no end."""
        return self._merge.share()

    def read_ahead(self, numeric: Sequence[str]) -> None:
        """From now on, take messages apart in the background; librdkafka fetches them in threads of its own."""
        if self._ahead is None:
            self._ahead = Ahead(self._read)

    def read(self) -> Rows | None:
        """The next rows; a block without rows where none came for a while, None at the end."""
        return self._read() if self._ahead is None else self._ahead.next()

    def _read(self) -> Rows | None:
        waited_until = time.monotonic() + POLL_SECONDS
        while True:
            messages = self._merge.take()
            if messages:
                labels = self._labels is not None and messages[0].topic() == self._labels.topic
                return self._messages.rows(messages, labels=labels, live=self._merge.idle)
            if self._merge.done:
                return None
            if time.monotonic() >= waited_until:
                self._health.check(str(self._data), lambda: self._consumer.list_topics(timeout=POLL_SECONDS))
                return no_rows(self._data.topic)
            self._fill()

    def _fill(self) -> None:
        """Wait a moment for messages, and put them where they belong."""
        for message in received(self._consumer, POLL_SECONDS / 4):
            error = message.error()
            if error is None:
                self._merge.add(message)
            elif is_end(error):
                self._merge.buffers[message.topic(), message.partition()].ended()
            else:
                check_error(error, f"{self._data}, partition {message.partition()}")
            self._health.well()
        self._pause()

    def _pause(self) -> None:
        """Fetch no more of partitions that are far ahead of the others, or at their end."""
        kafka = need_kafka(str(self._data))
        for one in self._merge.buffers.values():
            place = [kafka.TopicPartition(one.topic, one.partition)]
            if not one.paused and (len(one.waiting) >= MAX_BUFFERED or (one.complete and one.next > one.start)):
                self._consumer.pause(place)
                one.paused = True
            elif one.paused and not one.complete and len(one.waiting) < MAX_BUFFERED // 4:
                self._consumer.resume(place)
                one.paused = False

    def mark(self, offsets: Mapping[str, int]) -> None:
        """Tell the group where the run's last checkpoint stands; nobody waits for it, and natkal never asks for it."""
        commit(self._consumer, offsets)

    def close(self) -> None:
        """Read no more."""
        if self._ahead is not None:
            self._ahead.close()
        close_soon([self._consumer])


def received(consumer: Any, seconds: float) -> list[Any]:
    """The messages and events that have come, at least one of them if any comes in time."""
    found = consumer.consume(BLOCK_MESSAGES, 0)
    if found:
        return found
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(BLOCK_MESSAGES, 0)]


def is_end(error: Any) -> bool:
    """Whether an event says that a partition has no more messages by now."""
    import confluent_kafka

    return error.code() == confluent_kafka.KafkaError._PARTITION_EOF


def check_error(error: Any, where: str) -> None:
    """Raise where an event is a failure that waiting does not mend."""
    import confluent_kafka

    if error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
        raise StreamError(
            f"{where}: the broker has deleted messages that were not read yet ({error.str()}); --overwrite starts anew"
        )
    if error.fatal() or not (error.retriable() or error.code() < 0):
        raise StreamError(f"{where}: {error.str()}; the last checkpoint is kept, --resume goes on")


def commit(consumer: Any, offsets: Mapping[str, int]) -> None:
    """Commit offsets by names of partitions, without waiting; a failure changes nothing."""
    import confluent_kafka

    places = []
    for name, offset in offsets.items():
        topic, _, rest = name.rpartition("[")
        places.append(confluent_kafka.TopicPartition(topic, int(rest[:-1]), offset))
    with contextlib.suppress(confluent_kafka.KafkaException):
        if places:
            consumer.commit(offsets=places, asynchronous=True)
