"""A broker of Kafka in this process: the mock cluster inside librdkafka, which speaks the real protocol.

It keeps 5 MB of each partition, has consumer groups and committed offsets, takes transactions, and does not hide the
messages of a transaction that was not committed.
"""

import ctypes
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka


class MockKafka:
    """A cluster of one broker with these topics and numbers of partitions. Other processes connect to `address`."""

    def __init__(self, topics: Mapping[str, int]):
        self._library = _library()
        self._client = self._pointer(
            "rd_kafka_new", 0, self._pointer("rd_kafka_conf_new"), ctypes.create_string_buffer(512), 512
        )
        self._library.rd_kafka_set_log_level(self._client, 0)
        self._cluster = self._pointer("rd_kafka_mock_cluster_new", self._client, 1)
        bootstraps = self._library.rd_kafka_mock_cluster_bootstraps
        bootstraps.restype = ctypes.c_char_p
        self.address = bootstraps(self._cluster).decode()
        self._call("rd_kafka_mock_group_initial_rebalance_delay_ms", self._cluster, 0)
        for name, partitions in topics.items():
            self._call("rd_kafka_mock_topic_create", self._cluster, name.encode(), partitions, 1)
        self.producer = self.make_producer()

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._library, name)(*arguments)

    def _pointer(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        function = getattr(self._library, name)
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(*arguments))

    def close(self) -> None:
        """End the broker."""
        del self.producer
        self._call("rd_kafka_mock_cluster_destroy", self._cluster)
        self._call("rd_kafka_destroy", self._client)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the messages before an offset, as retention does."""
        delete = self._library.rd_kafka_mock_partition_delete_records
        delete.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64]
        assert not delete(self._cluster, topic.encode(), partition, offset)

    def set_down(self, *, down: bool) -> None:
        """Take the broker away, or bring it back."""
        self._call("rd_kafka_mock_broker_set_down" if down else "rd_kafka_mock_broker_set_up", self._cluster, 1)

    def make_producer(self) -> Any:
        """A producer that packs well: the broker keeps little."""
        settings = {
            "bootstrap.servers": self.address,
            "linger.ms": 20,
            "compression.type": "zstd",
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
        return confluent_kafka.Producer(settings)

    def url(self, topic: str) -> str:
        """The address of a topic."""
        return f"kafka://{self.address}/{topic}"

    def send(self, topic: str, values: Iterable[bytes | str], partition: Callable[[int], int] = lambda row: 0) -> None:
        """Write values, each to the partition that its number gives."""
        for row, value in enumerate(values):
            while True:
                try:
                    self.producer.produce(topic, value, key=f"k{row}", partition=partition(row))
                    break
                except BufferError:
                    self.producer.poll(0.1)
        assert self.producer.flush(60) == 0

    def read(self, topic: str, partitions: int) -> list[Any]:
        """All messages of a topic."""
        consumer = self.make_consumer("test.reader")
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
        found, ended = [], 0
        while ended < partitions:
            message = consumer.poll(10)
            assert message is not None
            ended += message.error() is not None
            found += [message] if message.error() is None else []
        consumer.close()
        return found

    def make_consumer(self, group: str) -> Any:
        """A consumer that sees where partitions end."""
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": group,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )


def json_lines(columns: Sequence[str], values: Iterable[Iterable[float]]) -> list[str]:
    """Rows as JSON objects."""
    return [json.dumps(dict(zip(columns, map(float, row), strict=True))) for row in values]


def _library() -> Any:
    """The librdkafka that confluent-kafka brings along."""
    folder = Path(str(confluent_kafka.__file__)).parent.parent / "confluent_kafka.libs"
    return ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
