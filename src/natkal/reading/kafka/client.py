"""Clients of Kafka: their settings, and their failures as sentences."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from natkal.errors import StreamError, did_you_mean
from natkal.reading.kafka.address import KafkaAddress

ANSWER_SECONDS = 10.0
"""How long a broker may take to answer at the start."""
SILENCE_SECONDS = 60.0
"""How long all brokers may be unreachable in the middle of a run."""
CLOSE_SECONDS = 1.0
"""How long leaving a group may take."""
POLL_SECONDS = 0.2
"""The longest wait for messages between two looks at whether to stop."""
OURS = ("group.id", "enable.auto.commit", "enable.partition.eof", "auto.offset.reset", "bootstrap.servers")
"""What natkal decides itself: a file of settings may not change it."""


def need_kafka(what: str) -> Any:
    """confluent-kafka, or the command that installs it."""
    try:
        import confluent_kafka
    except ModuleNotFoundError as error:
        raise StreamError(f"{what} needs confluent-kafka: pip install 'natkal[kafka]'") from error
    return confluent_kafka


def read_config(path: str | None) -> dict[str, str]:
    """Settings of librdkafka from a file of lines `name=value`; `#` begins a comment."""
    if path is None:
        return {}
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StreamError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.strip().partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals:
            raise StreamError(f"{path}, line {number}: write name=value, as in security.protocol=SASL_SSL")
        if name.strip() in OURS:
            raise StreamError(f"{path}, line {number}: {name.strip()} is set by natkal")
        found[name.strip()] = value.strip()
    return found


class Health:
    """What librdkafka reports outside of any call: the last failure, and since when no broker answers."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.said = ""
        self._fatal = ""

    def heard(self, error: Any) -> None:
        """librdkafka's error callback."""
        import confluent_kafka

        if error.code() != confluent_kafka.KafkaError._ALL_BROKERS_DOWN:
            self.said = error.str()
        if error.fatal():
            self._fatal = error.str()
        if error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN and self._since is None:
            self._since = time.monotonic()

    def well(self) -> None:
        """A broker has answered."""
        self._since = None

    def check(self, name: str, probe: Callable[[], Any]) -> None:
        """Raise where the client cannot go on; `probe` asks a broker for anything."""
        if self._fatal:
            raise StreamError(f"{name}: {self._fatal}; the last checkpoint is kept, --resume goes on")
        if self._since is None or time.monotonic() - self._since < SILENCE_SECONDS:
            return
        import confluent_kafka

        try:
            probe()
        except confluent_kafka.KafkaException as error:
            raise StreamError(
                f"{name}: no broker has answered for {SILENCE_SECONDS:.0f} s ({self.said}); the last checkpoint is "
                "kept, --resume goes on"
            ) from error
        self.well()


def make_client(kind: str, address: KafkaAddress, config: Mapping[str, Any], health: Health) -> Any:
    """A Consumer or a Producer; it logs nothing by itself."""
    kafka = need_kafka(str(address))
    given = {"log_level": 0, "client.id": "natkal", **config, "bootstrap.servers": address.brokers}
    try:
        return getattr(kafka, kind)({**given, "error_cb": health.heard})
    except (kafka.KafkaException, ValueError, TypeError) as error:
        raise StreamError(f"{address}: the client cannot be made: {message_of(error)}") from error


def make_consumer(address: KafkaAddress, group: str, config: Mapping[str, Any], health: Health, **changes: Any) -> Any:
    """A consumer whose offsets are nobody's but natkal's."""
    settings = {
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 65_536,
        **config,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        **changes,
    }
    return make_client("Consumer", address, settings, health)


def partitions_of(client: Any, address: KafkaAddress, health: Health) -> list[int]:
    """The numbers of a topic's partitions; a sentence where broker or topic do not answer."""
    kafka = need_kafka(str(address))
    try:
        everything = client.list_topics(timeout=ANSWER_SECONDS).topics
        found = client.list_topics(address.topic, timeout=ANSWER_SECONDS).topics[address.topic]
    except kafka.KafkaException as error:
        client.poll(0)  # tells the error callback what went wrong
        raise StreamError(f"{address}: no broker answers ({health.said or message_of(error)})") from error
    if found.error is not None:
        if found.error.code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            known = sorted(name for name in everything if not name.startswith("__"))
            listed = f"; the broker has {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}" if known else ""
            hint = did_you_mean(address.topic, known)
            raise StreamError(f"{address}: there is no such topic{listed}{f'; {hint.strip()}' if hint else ''}")
        raise StreamError(f"{address}: the topic cannot be read: {found.error.str()}")
    if not found.partitions:
        raise StreamError(f"{address}: the topic has no partitions")
    return sorted(found.partitions)


def span_of(consumer: Any, address: KafkaAddress, partition: int) -> tuple[int, int]:
    """The first offset that the broker still has of a partition, and the offset behind its last message."""
    kafka = need_kafka(str(address))
    try:
        found = consumer.get_watermark_offsets(
            kafka.TopicPartition(address.topic, partition), timeout=ANSWER_SECONDS, cached=False
        )
    except kafka.KafkaException as error:
        raise StreamError(f"{address}, partition {partition}: {message_of(error)}") from error
    if found is None:
        raise StreamError(f"{address}, partition {partition}: the broker did not answer within {ANSWER_SECONDS:.0f} s")
    return found


def start_of(consumer: Any, address: KafkaAddress, partition: int, kept: int | None) -> tuple[int, int]:
    """Where reading begins (the checkpoint's offset, or the first message) and the offset behind the last message."""
    low, high = span_of(consumer, address, partition)
    if kept is None:
        return low, high
    if kept < low:
        raise StreamError(
            f"{address}, partition {partition}: the checkpoint goes on at message {kept:,}, and the broker has deleted "
            f"those before {low:,}: {low - kept:,} messages are missing; --overwrite starts a new run"
        )
    if kept > high:
        raise StreamError(
            f"{address}, partition {partition}: the checkpoint goes on at message {kept:,}, and the topic ends at "
            f"{high:,}: it is not the topic that was read; --overwrite starts a new run"
        )
    return kept, high


def message_of(error: BaseException) -> str:
    """A failure of confluent-kafka in the words of librdkafka."""
    first: Any = error.args[0] if error.args else error
    return first.str() if hasattr(first, "str") else str(first)


def close_soon(clients: Sequence[Any]) -> None:
    """Close consumers; one that cannot reach its broker is left after a second."""
    workers = [threading.Thread(target=client.close, daemon=True, name="closing") for client in clients]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(CLOSE_SECONDS)
