"""Where an output goes."""

from pathlib import Path

from natkal.reading.kafka.address import is_kafka, kafka_address


def check_place(place: str | None) -> str | None:
    """Where an output goes: an address as it stands, a file by its absolute path."""
    if place is None:
        return None
    if is_kafka(place):
        return str(kafka_address(place))
    return str(Path(place).absolute())
