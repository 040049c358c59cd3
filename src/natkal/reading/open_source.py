"""The source that DATA names: files, a pipe, or a topic of Kafka."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from natkal.errors import StreamError
from natkal.reading.go_on import START
from natkal.reading.kafka.address import is_kafka, kafka_address
from natkal.reading.kafka.source import KafkaSource
from natkal.reading.source import RowSource, Source, find_files
from natkal.settings.settings import Settings, check_settings
from natkal.tables.schema.rows import Position


def open_source(
    data: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    until_end: bool = False,
    position: Callable[[list[str]], Position] = lambda files: START,
    offsets: Mapping[str, int] | None = None,
) -> RowSource:
    """The rows of DATA from where a checkpoint stands: `position` of the files, `offsets` of a topic."""
    check_data(data, settings, until_end=until_end)
    if offsets and not (
        is_kafka(data[0]) and any(name.startswith(f"{kafka_address(data[0]).topic}[") for name in offsets)
    ):
        raise StreamError(f"--resume: the run stands in the topic of {min(offsets)}, and {data[0]} is another one")
    if not is_kafka(data[0]):
        files = find_files(data)
        return Source(files, position(files), settings.encoding)
    return KafkaSource(
        data[0],
        offsets=offsets,
        until_end=until_end,
        group=group_of(settings, folder),
        config=settings.kafka_config,
        label_topic=settings.label_topic,
        label_columns=[name for name in (settings.id, settings.key, *settings.targets) if name is not None],
    )


def group_of(settings: Settings, folder: Path) -> str:
    """The consumer group: the one asked for, or the name of the run's folder."""
    return settings.group or folder.resolve().name or "natkal"


def check_data(data: Sequence[str], settings: Settings, *, until_end: bool) -> None:
    """Refuse options that no run can have, or that do not fit the data."""
    check_settings(settings)
    topics = [name for name in data if is_kafka(name)]
    if topics and len(data) > 1:
        raise StreamError(f"{topics[0]}: a topic cannot be combined with other data")
    if not topics and until_end:
        raise StreamError("--until-end: is for a topic (kafka://BROKER/TOPIC); files end by themselves")
    if settings.label_topic is None:
        return
    if not topics:
        raise StreamError("--label-topic: is for a topic (kafka://BROKER/TOPIC); in files labels come as rows, by --id")
    if settings.id is None:
        raise StreamError("--label-topic: give --id, the column that names the row a label belongs to")
    if settings.missing == "reject":
        raise StreamError("--label-topic: labels have no features, so --missing reject would reject all of them")
