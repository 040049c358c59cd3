"""`kafka://BROKER[:PORT][,BROKER...]/TOPIC`: where a topic is."""

import re
from typing import NamedTuple

from natkal.errors import StreamError

SCHEME = "kafka://"
PORT = 9092
"""The port of a broker where the address names none."""
LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
BROKER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(:\d{1,5})?")


class KafkaAddress(NamedTuple):
    """Brokers to ask first, as librdkafka takes them, and a topic."""

    brokers: str
    topic: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.brokers}/{self.topic}"


def is_kafka(name: str) -> bool:
    """Whether the name is meant as the address of a topic."""
    return name.lower().startswith(SCHEME)


def kafka_address(text: str) -> KafkaAddress:
    """The brokers and the topic that an address names."""
    brokers, slash, topic = text[len(SCHEME) :].partition("/")
    hosts = brokers.split(",")
    if not slash or not topic or not all(BROKER.fullmatch(host) for host in hosts):
        raise StreamError(f"{text}: write {SCHEME}BROKER:PORT/TOPIC; several brokers are separated by commas")
    check_topic(topic)
    return KafkaAddress(",".join(host if _has_port(host) else f"{host}:{PORT}" for host in hosts), topic)


def check_topic(topic: str) -> str:
    """The topic, if Kafka allows its name."""
    if not LEGAL_TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise StreamError(f"{topic!r}: the name of a topic has letters, digits, '.', '_' and '-' only")
    return topic


def _has_port(host: str) -> bool:
    return re.search(r":\d+$", host.rpartition("]")[2] or host) is not None


def topic_beside(data: KafkaAddress, text: str) -> KafkaAddress:
    """The topic that an option names: an address of its own, or a topic on the brokers of the data."""
    return kafka_address(text) if is_kafka(text) else KafkaAddress(data.brokers, check_topic(text))
