"""`PartitionRun`: one model for each partition that a consumer group gives to this process.

Every partition has a folder of its own in the run, which all members of the group must see. README.md says why a state
is right whoever wrote it.
"""

import time
from collections.abc import Callable
from pathlib import Path

from natkal.errors import StreamError
from natkal.reading.first_rows import enough, recognise
from natkal.reading.kafka.address import is_kafka, kafka_address
from natkal.reading.kafka.group import PartitionGroup
from natkal.reading.kafka.messages import partition_name
from natkal.reading.open_source import group_of
from natkal.runs import checkpoint
from natkal.runs.folder import take_over
from natkal.runs.session import Session
from natkal.settings.settings import Counts, Settings
from natkal.tables.schema.rows import Rows


class PartitionRun:
    """A member of the group, with the sessions of its partitions. `tell` hears of partitions that come and go."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        address: str,
        *,
        until_end: bool = False,
        tell: Callable[[str], None] = lambda words: None,
    ):
        check_partition_settings(settings)
        self.folder, self.settings = folder, settings
        self.address = str(kafka_address(address))
        self.sessions: dict[int, Session] = {}
        self.results: dict[int, Session] = {}
        """The session of every partition that was ever learned here, as it was left."""
        self.counts = Counts()
        """Rows taken by this process."""
        self._topic = kafka_address(address).topic
        self._waiting: dict[int, list[Rows]] = {}
        """The first rows of partitions that have no session yet."""
        self._saved: dict[int, int] = {}
        self._finished: set[int] = set()
        self._tell = tell
        self._stop: Callable[[], bool] = lambda: False
        self._saved_at = time.monotonic()
        self.group = PartitionGroup(
            self.address, group_of(settings, folder), self, until_end=until_end, config=settings.kafka_config
        )

    # -- partitions that come and go -----------------------------------------------------------------------------------

    def _folder(self, partition: int) -> Path:
        return self.folder / f"partition-{partition}"

    def taken(self, partition: int) -> int | None:
        """Go on from the partition's checkpoint, whoever wrote it."""
        place = self._folder(partition)
        place.mkdir(parents=True, exist_ok=True)
        if not checkpoint.exists(place):
            self._waiting[partition] = []
            self._tell(f"partition {partition}: taken, no checkpoint yet")
            return None
        session, warning = Session.resume(place, model=self.settings.model)
        if warning:
            self._tell(warning)
        if session.settings != self.settings:
            raise StreamError(f"{place}: was learned with other options; a group's members must have the same")
        self._add(partition, session)
        offset = session.offsets.get(partition_name(self._topic, partition))
        self._tell(f"partition {partition}: taken, goes on at message {offset or 0:,}")
        return offset

    def given_up(self, partition: int) -> None:
        """Write the partition's checkpoint, for its next owner."""
        session = self.sessions.get(partition)
        if session is not None:
            if session.counts.read > self._saved[partition]:
                self._save(partition)
            self._tell(f"partition {partition}: handed over after {session.counts.read:,} rows")
        self.lost(partition)

    def lost(self, partition: int) -> None:
        """Forget the partition."""
        self._waiting.pop(partition, None)
        self._finished.discard(partition)
        session = self.sessions.pop(partition, None)
        if session is not None:
            self.results[partition] = session
            session.close_outputs()

    # -- learning ------------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        checkpoint_rows: int | None = None,
        checkpoint_seconds: float | None = 30.0,
        stop: Callable[[], bool] = lambda: False,
        report: Callable[["PartitionRun"], None] = lambda run: None,
    ) -> bool:
        """Learn to the end of all partitions; False where `stop` asked to end before. Checkpoints are left."""
        self._stop = stop
        try:
            while not self.step(checkpoint_rows=checkpoint_rows, checkpoint_seconds=checkpoint_seconds):
                report(self)
            return self.group.done
        finally:
            self.close()

    def step(self, *, checkpoint_rows: int | None = None, checkpoint_seconds: float | None = 30.0) -> bool:
        """Take what has come, or wait for a moment; whether this was the end."""
        for rows in self.group.read():
            self._take(rows)
            self._save_where_rows_are_due(checkpoint_rows)
            if self._stop():
                break
        self._finish_complete()
        ending = self._stop() or self.group.done
        if ending or (checkpoint_seconds is not None and time.monotonic() - self._saved_at >= checkpoint_seconds):
            self._save_all()
            self._saved_at = time.monotonic()
        return ending

    def close(self) -> None:
        """Leave the group; what was learned since the last checkpoints is forgotten."""
        self.group.close()
        for partition in list(self.sessions):
            self.lost(partition)

    def _take(self, rows: Rows) -> None:
        assert rows.partition is not None
        partition = rows.partition
        self.counts.read += rows.read
        if partition in self._waiting:
            first = self._waiting[partition]
            first.append(rows)
            if enough(self.settings, first):
                self._begin(partition)
        elif partition in self.sessions:
            self._advance(self.sessions[partition], rows)

    def _add(self, partition: int, session: Session) -> None:
        take_over(session)
        session.stop = lambda: self._stop()
        self.sessions[partition] = session
        self._saved[partition] = session.counts.read

    def _begin(self, partition: int) -> None:
        """The first rows of a partition are there: its model begins."""
        first = self._waiting.pop(partition)
        schema = recognise(self.settings, first, open_columns=True, kinds={})
        session = Session.start(self._folder(partition), self.settings, schema, [self.address])
        self._add(partition, session)
        session.save()
        for rows in first:
            self._advance(session, rows)

    def _advance(self, session: Session, rows: Rows) -> None:
        before = (session.counts.learned, session.counts.rejected, session.counts.skipped)
        session.advance(rows)
        self.counts.learned += session.counts.learned - before[0]
        self.counts.rejected += session.counts.rejected - before[1]
        self.counts.skipped += session.counts.skipped - before[2]
        session.check_rejects()

    def _finish_complete(self) -> None:
        """Close the books of partitions that are at their end."""
        for partition in {*self.sessions, *self._waiting} - self._finished:
            if not self.group.finished(partition):
                continue
            self._finished.add(partition)
            if self._waiting.get(partition):
                self._begin(partition)
            if partition in self.sessions:
                self.sessions[partition].finish()
                self._saved[partition] = self.sessions[partition].counts.read

    def _save_where_rows_are_due(self, checkpoint_rows: int | None) -> None:
        if checkpoint_rows is not None:
            for partition, session in self.sessions.items():
                if session.counts.read - self._saved[partition] >= checkpoint_rows:
                    self._save(partition)

    def _save_all(self) -> None:
        for partition, session in self.sessions.items():
            if session.counts.read > self._saved[partition]:
                self._save(partition)

    def _save(self, partition: int) -> None:
        session = self.sessions[partition]
        session.save()
        self._saved[partition] = session.counts.read
        self.group.mark(session.offsets)


def check_partition_settings(settings: Settings) -> None:
    """Refuse what cannot be shared out among partitions."""
    if settings.pool:
        raise StreamError("--partition-models: each partition has a model of its own; leave out --pool")
    if settings.label_topic is not None:
        raise StreamError(
            "--partition-models: labels of another topic may be another member's; write them into the topic itself, "
            "under the key of their row, and use --id"
        )
    for name in ("predictions", "metrics", "rejects"):
        place = getattr(settings, name)
        if place and not is_kafka(place):
            raise StreamError(
                f"--partition-models: --{name} must be a topic, kafka://BROKER/TOPIC; a file has one writer"
            )
