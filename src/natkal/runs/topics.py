"""Topics a run writes to. What was sent cannot be cut back, so a resumed run leaves out what it finds there."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.reading.kafka.address import KafkaAddress, kafka_address
from natkal.reading.kafka.client import (
    ANSWER_SECONDS,
    Health,
    close_soon,
    make_client,
    make_consumer,
    message_of,
    need_kafka,
    partitions_of,
    read_config,
    span_of,
)
from natkal.reading.kafka.source import is_end, received
from natkal.settings.settings import Settings
from natkal.tables.schema.rows import Reject, Rows, printable

ROW_HEADER = "natkal"
"""The header that names the row a message belongs to: file or partition, and line or offset."""
REASON_HEADER = "natkal.reason"
DELIVERY_SECONDS = 30.0
"""How long brokers may take to acknowledge a message."""
LAST_SECONDS = 1.0
"""The same once the run was asked to stop."""


def open_topics(
    topics: Mapping[str, str],
    settings: Settings,
    folder: Path,
    files: Sequence[str],
    kept: Mapping[str, Any],
    stop: Callable[[], bool],
) -> dict[str, "TopicOutput"]:
    """The topics of a run by what is written to each, with what its checkpoint holds of them."""
    found: dict[str, TopicOutput] = {}
    addresses = {name: kafka_address(place) for name, place in topics.items()}
    if settings.transactions and not addresses:
        raise StreamError("--transactions: nothing is written to a topic; use --predictions kafka://BROKER/TOPIC")
    if settings.transactions and len({one.brokers for one in addresses.values()}) > 1:
        raise StreamError(
            "--transactions: a transaction is on the brokers of one cluster; name the same for all topics"
        )
    for name, address in addresses.items():
        if str(address) in files:
            raise StreamError(f"{address}: is the data itself; name another topic for the {name}")
    config = read_config(settings.kafka_config)
    transaction = f"natkal.{settings.group or ''}.{folder.resolve().name}" if settings.transactions else None
    writers: dict[str, TopicWriter] = {}
    for name, address in addresses.items():
        if address.brokers not in writers:
            writers[address.brokers] = TopicWriter(address, config, transaction, stop)
        found[name] = TopicOutput(address, writers[address.brokers], config, _ends(address, kept.get(name)))
    return found


def _ends(address: KafkaAddress, kept: Any) -> dict[int, int]:
    """The ends of a topic's partitions as a checkpoint has them."""
    try:
        return {int(partition): int(offset) for partition, offset in dict(kept or {}).items()}
    except (TypeError, ValueError) as error:
        raise StreamError(f"{address}: the checkpoint was written with another kind of output") from error


class TopicWriter:
    """One producer for all topics of a run on the same brokers, and its transaction."""

    def __init__(
        self, address: KafkaAddress, config: Mapping[str, Any], transaction: str | None, stop: Callable[[], bool]
    ):
        self._kafka = need_kafka(str(address))
        self._name = str(address)
        self._health = Health()
        self.transactional = transaction is not None
        self._open = False
        self._failed = ""
        self._stop = stop
        settings: dict[str, Any] = {
            "linger.ms": 5,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "message.timeout.ms": int(1000 * DELIVERY_SECONDS),
            **config,
            "enable.idempotence": True,
        }
        if transaction is not None:
            settings["transactional.id"] = transaction
            settings["message.timeout.ms"] = int(1000 * DELIVERY_SECONDS)
            settings["transaction.timeout.ms"] = 15 * 60 * 1000
        self.producer = make_client("Producer", address, settings, self._health)
        if transaction is not None:
            # Ends what a process that was killed, or that hangs, has under way.
            self._answered(lambda: self.producer.init_transactions(ANSWER_SECONDS))

    def partitions(self, address: KafkaAddress) -> list[int]:
        """The topic's partitions. A broker that makes topics on demand gets time to."""
        for attempt in range(4):
            try:
                return partitions_of(self.producer, address, self._health)
            except StreamError:
                if attempt == 3:
                    raise
                if address.topic in self._answered(lambda: self.producer.list_topics(timeout=ANSWER_SECONDS)).topics:
                    raise
                time.sleep(0.25)
        raise AssertionError

    def send(self, topic: str, value: bytes, told: Callable[[int, int], None], **more: Any) -> None:
        """Put a message on its way; `told` hears its partition and offset."""
        if self.transactional and not self._open:
            self._answered(self.producer.begin_transaction)
            self._open = True

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._failed = error.str()
            else:
                told(message.partition(), message.offset())

        while True:
            try:
                self.producer.produce(topic, value, on_delivery=delivered, **more)
                return
            except BufferError:
                self.producer.poll(0.1)
                self._check()
            except self._kafka.KafkaException as error:
                raise self._cannot(message_of(error)) from error

    def flush(self, *, sync: bool) -> None:
        """Send what waits; with `sync`, until all of it is acknowledged, and committed."""
        self.producer.poll(0)
        self._check()
        if not sync:
            return
        began = time.monotonic()
        while self.producer.flush(0.05):
            self._check()
            patience = LAST_SECONDS if self._stop() else DELIVERY_SECONDS + ANSWER_SECONDS
            if time.monotonic() - began > patience:
                raise self._cannot(f"no broker has acknowledged them within {patience:.0f} s")
        self._check()
        if self._open:
            self._answered(lambda: self.producer.commit_transaction(LAST_SECONDS if self._stop() else DELIVERY_SECONDS))
            self._open = False

    def _check(self) -> None:
        if self._failed:
            raise self._cannot(self._failed)

    def _answered(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except self._kafka.KafkaException as error:
            raise self._cannot(message_of(error)) from error

    def _cannot(self, why: str) -> StreamError:
        return StreamError(
            f"{self._name}: messages cannot be written ({why}); the last checkpoint is kept, --resume goes on"
        )


class TopicOutput:
    """A topic that gets one message for each row. `ends`: where its partitions ended at the run's last checkpoint."""

    def __init__(self, address: KafkaAddress, writer: TopicWriter, config: Mapping[str, Any], ends: dict[int, int]):
        self.path = str(address)
        self._topic = address.topic
        self._writer = writer
        self._partitions = writer.partitions(address)
        self._ends = ends
        self._sent: set[bytes] = set()
        if writer.transactional:
            self._sent = self._behind(address, config)

    @property
    def kept(self) -> dict[str, int]:
        """The offset behind the last message that this run has sent to each partition, where there are transactions."""
        return {str(partition): offset for partition, offset in self._ends.items()}

    def cut(self) -> None:
        """What was sent cannot be cut off; what is found there is left out instead."""

    def write(self, text: str) -> None:
        """Send lines that belong to no row."""
        for line in text.splitlines():
            self._send(line.encode(), b"", None, [])

    def write_rows(self, text: str, rows: Rows, lines: np.ndarray) -> None:
        """Send one line for each row, under the key of the row's own message."""
        for line, value in zip(lines.tolist(), text.splitlines(), strict=True):
            self._send(value.encode(), _name(rows.file, line), rows.messages.get(line), [], rows.partition)

    def write_reject(self, reject: Reject, rows: Rows) -> None:
        """Send the row's own message as it came, or what is known of the row, with the reason in a header."""
        message = rows.messages.get(reject.line)
        value = json.dumps(reject._asdict(), ensure_ascii=False).encode() if message is None else message.value()
        reason = [(REASON_HEADER, printable(reject.reason).encode())]
        self._send(value, _name(reject.file, reject.line), message, reason, rows.partition)

    def _send(
        self, value: bytes, name: bytes, message: Any, headers: list[tuple[str, bytes]], partition: int | None = None
    ) -> None:
        if name in self._sent:
            self._sent.discard(name)
            return
        key = None if message is None else message.key()
        more: dict[str, Any] = {"key": key, "headers": [(ROW_HEADER, name), *headers] if name else headers}
        if key is None and partition in self._partitions:
            more["partition"] = partition
        self._writer.send(self._topic, value, self._told, **more)

    def _told(self, partition: int, offset: int) -> None:
        if self._writer.transactional:
            self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)

    def flush(self, *, sync: bool = False) -> None:
        """Send what waits; with `sync`, until all of it is acknowledged, and committed."""
        self._writer.flush(sync=sync)

    def close(self) -> None:
        """No more. What was not acknowledged by now is behind the last checkpoint, and not missed."""

    def _behind(self, address: KafkaAddress, config: Mapping[str, Any]) -> set[bytes]:
        """The rows whose messages were committed behind the ends of the checkpoint; sets the ends where it has none."""
        kafka = need_kafka(self.path)
        health = Health()
        consumer = make_consumer(address, "natkal.reader", config, health, **{"isolation.level": "read_committed"})
        try:
            spans = {partition: span_of(consumer, address, partition) for partition in self._partitions}
            starts = {partition: max(self._ends.get(partition, high), low) for partition, (low, high) in spans.items()}
            unread = {partition for partition, start in starts.items() if start < spans[partition][1]}
            self._ends = dict(starts)
            consumer.assign([kafka.TopicPartition(self._topic, partition, starts[partition]) for partition in unread])
            found: set[bytes] = set()
            heard = time.monotonic()
            while unread:
                for message in received(consumer, 0.1):
                    heard = time.monotonic()
                    error, partition = message.error(), message.partition()
                    if error is None:
                        found |= {name for key, name in message.headers() or [] if key == ROW_HEADER}
                    if (error is not None and is_end(error)) or message.offset() + 1 >= spans[partition][1]:
                        unread.discard(partition)
                if time.monotonic() - heard > DELIVERY_SECONDS:
                    raise StreamError(f"{self.path}: cannot be read behind the checkpoint; no broker answers")
            return found
        finally:
            close_soon([consumer])


def _name(file: str, line: int) -> bytes:
    return f"{printable(file)}:{line}".encode()
