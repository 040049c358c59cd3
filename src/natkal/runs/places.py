"""Where an output goes, and in which format, by its ending."""

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

from natkal.errors import StreamError
from natkal.reading.kafka.address import is_kafka, kafka_address
from natkal.settings.fields import options_of

S = TypeVar("S", bound=Any)

ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


def with_places(settings: S) -> S:
    """The settings with every output where it goes; refused where its ending is none of the formats it comes in."""
    places = {
        one.field: check_place(getattr(settings, one.field), f"--{one.name}", *one.option.formats)
        for one in options_of(type(settings))
        if one.option.formats
    }
    return dataclasses.replace(settings, **places)


def check_place(place: str | None, option: str, *formats: str) -> str | None:
    """Where an output goes: an address as it stands, a file by its absolute path, in one of these formats."""
    if place is None:
        return None
    if is_kafka(place):
        return str(kafka_address(place))
    format_of(Path(place), option, *formats)
    return str(Path(place).absolute())


def format_of(path: Path, option: str, *formats: str) -> str:
    """The format that the ending names, one of `formats`; the first of them where there is no ending."""
    found = ENDINGS.get(path.suffix.lower(), "") if path.suffix else formats[0]
    if found not in formats:
        takes = " or ".join(f".{name}" for name in formats)
        raise StreamError(f"{option}: {path.name}: cannot write {path.suffix} files; name one that ends in {takes}")
    return found
