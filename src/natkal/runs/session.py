"""A run from its first row to its last: read, check, predict, learn, write, and keep a checkpoint to go on from."""

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natkal.errors import Stopped, StreamError
from natkal.forecasting.calendar import Clock
from natkal.reading.first_rows import look
from natkal.reading.kafka.address import is_kafka
from natkal.reading.source import STDIN, RowSource
from natkal.runs import checkpoint, snapshot
from natkal.runs.answers import PredictionFormat
from natkal.runs.blocks import rows_of, wider
from natkal.runs.folder import chain, take_over
from natkal.runs.forecast_scores import FILE_HEADER, ForecastScores, check_scorable, line_of
from natkal.runs.late import no_name
from natkal.runs.learning import Block, Learning
from natkal.runs.make_learner import check_memory, check_pool, make_learner
from natkal.runs.metrics import RECENT, Metrics, record, written
from natkal.runs.outputs import Appender, Ends, Output, csv_line, places
from natkal.runs.rejects import check_count, column_warnings, warnings
from natkal.runs.topics import open_topics
from natkal.settings.settings import Settings
from natkal.storage.parts import Field, Numbers, StoredPart, by_name, each, text, whole
from natkal.tables.encode.encoder import Encoded, Encoder
from natkal.tables.engine.batch import Predictions, interleaved, stacked
from natkal.tables.schema.infer import Schema, Target
from natkal.tables.schema.rows import Position, Rows
from natkal.tables.table import TableLearner


class Session(Ends, Learning):
    """One run in one folder. Build it with `begin` or `resume`, then `run` it."""

    def __init__(self, folder: Path, settings: Settings, encoder: Encoder, learner: TableLearner):
        super().__init__(settings, encoder, learner)
        self.folder = folder
        self.metrics = Metrics(encoder.schema.targets, _members(learner), settings.metrics_every)
        self.format = self._format(encoder.schema.targets, None)
        self.files: list[str] = []
        self.position = Position(0, 0, 1)
        """Where the files are read on."""
        self.ended = False
        """Whether the files were read to their end."""
        self.offsets: dict[str, int] = {}
        """The next message of each partition, where rows come from a log."""
        self.recent_inputs = np.zeros((0, encoder.width))
        self.clock = Clock()
        """The columns that go on by themselves, for forecasts."""
        self.forecasts = None if settings.horizon is None else ForecastScores(settings.horizon)
        if self.forecasts is not None:
            learner.take_few_rows()
        self.kept: dict[str, Any] | None = None
        """What the checkpoint that the run goes on from holds of each output."""
        self.outputs: dict[str, Output] = {}
        self.series: list[dict[str, int | float]] = []
        """The figures of the windows that this process has closed."""
        self._pending: deque[tuple[Block, Rows]] = deque()
        self.stop: Callable[[], bool] = lambda: False
        """Whether the run was asked to end: nothing is waited for much longer then."""

    # -- starting ------------------------------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls, folder: Path, settings: Settings, source: RowSource, looked: tuple[Schema, list[Rows]] | None = None
    ) -> tuple["Session", list[Rows]]:
        """A new run: the schema comes from the first rows (`look`), which are returned to be learned."""
        schema, first = look(settings, source) if looked is None else looked
        try:
            session = cls.start(folder, settings, schema, source.names, first)
        except StreamError:
            source.close()
            raise
        return session, first

    @classmethod
    def start(
        cls, folder: Path, settings: Settings, schema: Schema, files: Sequence[str], first: Sequence[Rows] = ()
    ) -> "Session":
        """A new run on data whose columns are known."""
        check_memory(settings)
        check_pool(settings)
        encoder = Encoder(schema)
        session = cls(folder, settings, encoder, make_learner(settings, encoder, first))
        if session.forecasts is not None:
            check_scorable(session)
        session.files = list(files)
        return session

    @classmethod
    def resume(cls, folder: Path, *, model: str | None = None) -> tuple["Session", str | None]:
        """The run in this folder as its last whole checkpoint has it, and a warning where that is an older one."""
        found = checkpoint.find(folder)
        if found is None:
            raise StreamError(f"{folder}: there is no checkpoint to resume from")
        path, header, arrays, warning = found
        return cls.restored(path, header, arrays, folder, model), warning

    @classmethod
    def restored(
        cls, path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], folder: Path, model: str | None
    ) -> "Session":
        """The session of a checkpoint that was read whole; everything in it is checked before it is used."""
        return snapshot.restored(cls, path, header, arrays, folder, model)

    def stored_parts(self) -> dict[str, StoredPart]:
        """What survives a restart, in the order of restoring; a new field is a line here, or in the class it is in."""
        kept = functools.partial(Field, self)
        found = super().stored_parts() | {
            "files": kept("files", each(text)),
            "position": kept("position", lambda value: Position(*each(whole)(value)), list),
            "ended": kept("ended", lambda value: value is True),
            "offsets": kept("offsets", by_name(whole)),
            "outputs": kept("ends", by_name(lambda end: end if isinstance(end, dict) else whole(end))),
            "predicted": kept("predicted", each(each(text))),
            "metrics": self.metrics,
            "recent": Numbers(self, "recent_inputs", (None, self.encoder.width)),
            "clock": kept("clock", Clock.restored, Clock.state),
        }
        return found if self.forecasts is None else found | {"forecasts": self.forecasts}

    @property
    def predicted(self) -> list[list[str]]:
        """The classes of each target that have a column in the file of predictions."""
        return self.format.classes

    @predicted.setter
    def predicted(self, classes: list[list[str]]) -> None:
        if len(classes) != len(self.schema.targets):
            raise ValueError("its predictions are of other targets")
        self.format = self._format(self.schema.targets, classes)

    def _format(self, targets: Sequence[Target], classes: Sequence[Sequence[str]] | None) -> PredictionFormat:
        wanted = self.settings.predictions or ""
        json_lines = is_kafka(wanted) or "json" in Path(wanted).suffix
        return PredictionFormat(targets, classes, json_lines=json_lines, level=self.settings.level)

    # -- running -------------------------------------------------------------------------------------------------------

    def run(
        self,
        source: RowSource,
        first: list[Rows],
        *,
        checkpoint_rows: int | None = None,
        checkpoint_seconds: float | None = 30.0,
        stop: Callable[[], bool] = lambda: False,
        report: Callable[["Session"], None] = lambda session: None,
    ) -> bool:
        """Learn to the end of the source; False where `stop` asked to end before. A checkpoint is left either way."""
        source.read_ahead(self.schema.all_numbers)
        source.stop = self.stop = stop
        saved_at, saved_rows = time.monotonic(), self.counts.read
        self.ended = False
        try:
            take_over(self)
            self.save()
            for rows in chain(first, source):
                self.advance(rows)
                due = checkpoint_seconds is not None and time.monotonic() - saved_at >= checkpoint_seconds
                due = due or (checkpoint_rows is not None and self.counts.read - saved_rows >= checkpoint_rows)
                stopping = stop()
                if (due and self.counts.read > saved_rows) or stopping:
                    self.save()
                    source.mark(self.offsets)
                    saved_at, saved_rows = time.monotonic(), self.counts.read
                report(self)
                if stopping:
                    return False
                self.check_rejects()
            self.ended = True
            self.finish()
            source.mark(self.offsets)
        except Stopped:
            self.save()
            return False
        finally:
            source.close()
            self.close_outputs()
        return True

    def advance(self, rows: Rows) -> None:
        """Take some rows, and write what is known by then of the rows before them."""
        if not rows.read:
            return
        earlier = len(self._pending)
        self.take(rows)
        for _ in range(min(earlier, len(self._pending))):
            self._settle()  # these were learned while the rows just taken were read
        if rows.live:
            self.settle_all()

    def take(self, rows: Rows) -> None:
        """Some rows: those before a column that is new, then the others."""
        first = 0
        for new in self.encoder.new_columns(rows):
            if new.row > first:
                self._take(rows.part(first, new.row))
                first = new.row
            self.settle_all()  # rows that wait are as wide as the table was
            before = self.encoder.width
            self.encoder.add(new.feature)
            self.learner.add_features(self.encoder.scaled[before:].tolist())
            self.recent_inputs = wider(self.recent_inputs, self.encoder.width)
        self._take(rows.part(first, len(rows)) if first else rows)

    def _take(self, rows: Rows) -> None:
        name = self.settings.id
        column = None if name is None else rows.columns.get(name, [None] * len(rows))
        prepared = self.prepare(rows, () if column is None else ["" if no_name(cell) else str(cell) for cell in column])
        self.accept(prepared)
        if rows.partition is None:
            self.position = rows.position
        else:
            self.offsets[rows.file] = rows.position.offset
        for reject in prepared.encoded.rejects:
            self.outputs["rejects"].write_reject(reject, rows)
        if not rows.labels and self.forecasts is None:
            self._tell_clock(rows, prepared.encoded)
        if self.forecasts is None:
            self._learn(prepared.encoded, rows)
        else:
            self._learn_and_forecast(self.forecasts, prepared.encoded, rows)
        if rows.file == STDIN:
            self.settle_all()

    def _tell_clock(self, rows: Rows, encoded: Encoded) -> None:
        all_of_them = len(encoded.lines) == len(rows)
        places = None if all_of_them else {int(line): row for row, line in enumerate(rows.lines)}
        good = range(len(rows)) if places is None else [places[int(line)] for line in encoded.lines]
        self.clock.observe(self.schema.features, rows.columns, good, encoded.keys)

    def _learn_and_forecast(self, forecasts: ForecastScores, encoded: Encoded, of: Rows) -> None:
        """Learn up to each row that the next ones are forecast from, and score what was expected of these rows."""
        first = 0
        for row, (line, y) in enumerate(zip(encoded.lines, encoded.targets[:, 0], strict=True)):
            key = encoded.keys[row] if encoded.keys else ""
            due = False
            if not np.isnan(y):
                expected = forecasts.came(key, float(y))
                due = forecasts.is_due(key)
                if expected is not None and "forecasts" in self.outputs:
                    self.outputs["forecasts"].write(line_of(int(line), key, float(y), expected))
            if due or row == len(encoded.lines) - 1:
                part = rows_of(encoded, slice(first, row + 1))
                self._tell_clock(of, part)
                self._learn(part, of)
                first = row + 1
            if due:
                while self._pending:
                    self._settle()
                forecasts.make(self, key)

    def _learn(self, encoded: Encoded, of: Rows) -> None:
        for block in self.learn(encoded):
            self._pending.append((block, of))

    def _settle(self) -> None:
        """Wait for the oldest block, and write what it says, window by window."""
        block, rows = self._pending.popleft()
        told, encoded = block.told, block.encoded
        if "predictions" in self.outputs and not rows.labels:
            text = self.format.write(encoded.lines, block.targets, told.targets, encoded.targets, rows.partition)
            self.outputs["predictions"].write_rows(text, rows, encoded.lines)
        self.score(encoded.inputs, encoded.targets, block.targets, told, encoded.times)

    def score(
        self,
        inputs: np.ndarray,
        observed: np.ndarray,
        targets: tuple[Target, ...],
        told: Predictions,
        times: np.ndarray | None = None,
    ) -> None:
        """Count what was told of some rows, window by window; `targets` as they were known then."""
        recent = np.concatenate([self.recent_inputs, wider(inputs[-RECENT:], self.encoder.width)])
        self.recent_inputs = recent[-RECENT:]
        columns = [
            np.stack(record(target, outcome, observed[:, position]), axis=1)
            for position, (target, outcome) in enumerate(zip(targets, told.targets, strict=True))
        ]
        members = np.column_stack([told.weights, told.effective_rows])[:, : len(self.metrics.members)]
        moments = np.full(len(inputs), np.nan) if times is None else times
        table = np.concatenate([*columns, moments[:, None], members], axis=1)
        for part, target in zip(self.metrics.parts, targets, strict=True):
            part.target = target
        first = 0
        while first < len(table):
            last = first + self.metrics.to_edge()
            figures = self.metrics.add(table[first:last])
            if figures is not None:
                self._write_figures(figures)
            first = last

    def settle_all(self) -> None:
        """Wait for all that is being learned, and write what it says."""
        while self._pending:
            self._settle()
        for output in self.outputs.values():
            output.flush()

    def _write_figures(self, figures: dict[str, int | float]) -> None:
        self.series.append(figures)
        cells = [written(name, figures[name]) if name in figures else "" for name in self.metrics.names]
        self.outputs["metrics"].write(",".join(cells) + "\n")

    def check_rejects(self) -> None:
        """Stop a run with more rejects than it may have, with a checkpoint."""
        try:
            check_count(self.counts, self.settings.max_rejects, self.outputs["rejects"].path)
        except StreamError:
            self.save()
            raise

    def warnings(self) -> list[str]:
        """What a person should know at the end of a run."""
        place = self.settings.rejects or self.folder / "rejects.jsonl"
        found = warnings(self.counts, self.reasons, self.learner.refused, place)
        return [*found, *column_warnings(self.schema)]

    def finish(self) -> None:
        """The end: labels still under way arrive, and the last window is written as far as it goes."""
        self.settle_all()
        if self.queue:
            late = stacked([*self.queue])
            self.queue.clear()
            self.learner.learn(interleaved(late.unlabelled(), late)).wait()
        self.save()
        figures = self.metrics.close()
        if figures is not None:
            self._write_figures(figures)
        for output in self.outputs.values():
            output.flush(sync=True)

    # -- on disk -------------------------------------------------------------------------------------------------------

    def opened(self) -> Iterator[tuple[str, Output]]:
        """What the run appends to."""
        kept = self.kept or {}
        self.format.partitions = any(map(is_kafka, self.files))
        first = {"metrics": csv_line(self.metrics.names), "predictions": self.format.header, "rejects": ""}
        if self.forecasts is not None:
            first["forecasts"] = FILE_HEADER
        files, topics = places(self.settings, self.folder, self.files, first)
        yield from open_topics(topics, self.settings, self.folder, self.files, kept, lambda: self.stop()).items()
        for name, path in files.items():
            yield name, Appender(path, int(kept.get(name, 0)), first[name])

    def close_outputs(self) -> None:
        """Write no more."""
        for output in self.outputs.values():
            output.close()

    def save(self) -> Path:
        """A checkpoint of everything up to the last row taken, its output files on disk before it."""
        self.settle_all()
        for output in self.outputs.values():
            output.flush(sync=True)
        return checkpoint.write(self.folder, *snapshot.snapshot(self))


def _members(learner: TableLearner) -> list[str]:
    """The members that metrics tell of: those of the only target, where there are several of them."""
    return learner.member_names if len(learner.targets) == 1 and not learner.options.single else []
