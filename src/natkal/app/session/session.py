"""A run from its first row to its last: read, check, predict, learn, write, and keep a checkpoint to go on from."""

import dataclasses
import json
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from natkal.app.reading.first_rows import look
from natkal.app.reading.source import STDIN, Source
from natkal.app.session import checkpoint, snapshot
from natkal.app.session.keyed_models import Fleet
from natkal.app.session.metrics import RECENT, Metrics
from natkal.app.session.outputs import Appender
from natkal.app.session.predictions import PredictionFormat
from natkal.tabular.errors import Stopped, StreamError
from natkal.tabular.features import Encoded, Encoder
from natkal.tabular.laws import law_of
from natkal.tabular.learners import has_memory
from natkal.tabular.loop import Feed, Pending, make_loop
from natkal.tabular.schema import Schema
from natkal.tabular.settings import Counts, Settings
from natkal.tabular.table import Position, Reject, Rows

HELD = 100_000
"""How many rows wait for a label that comes later under their id; the oldest give way."""


class Session:
    """One run in one folder. Build it with `begin` or `resume`, then `run` it."""

    def __init__(self, folder: Path, settings: Settings, schema: Schema, vocabularies: dict[str, list[str]]):
        self.folder = folder
        self.settings = settings
        self.schema = schema
        check_memory(settings)
        self.encoder = Encoder(_with_fixed_classes(schema), vocabularies)
        self.laws = tuple(law_of(target) for target in schema.targets)
        if not self.encoder.width:
            raise StreamError("no column is left to learn from")
        mask = tuple(self.encoder.scaled.tolist())
        self.loop, params = make_loop(settings.choice, self.laws, self.encoder.width, mask)
        self.learner = self.loop.learner
        self.fleet = Fleet(self.loop, params, settings.seed, keyed=schema.key is not None)
        sizes = tuple(law.summary_size for law in self.laws)
        self.metrics = Metrics(schema.targets, sizes, self.loop.members, settings.metrics_every)
        self.format = PredictionFormat(
            schema.targets, sizes, json_lines=bool(settings.predictions and "json" in Path(settings.predictions).suffix)
        )
        self.files: list[str] = []
        self.counts = Counts()
        self.reasons: dict[str, int] = {}
        self.position = Position(0, 0, 1)
        self.queue: deque[np.ndarray] = deque()
        """Rows whose label has not come yet: inputs, targets and the slot of their model, side by side."""
        self.sequences: dict[str, str] = {}
        """The sequence that each key's last row belonged to (under "" where there are no keys)."""
        self.held: OrderedDict[str, np.ndarray] = OrderedDict()
        self.recent_inputs = np.zeros((0, self.encoder.width))
        self.outputs: dict[str, Appender] = {}
        self._pending: deque[tuple[Pending, Encoded]] = deque()

    # -- starting ------------------------------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls, folder: Path, settings: Settings, source: Source, looked: tuple[Schema, list[Rows]] | None = None
    ) -> tuple["Session", list[Rows]]:
        """A new run: the schema comes from the first rows (`look`), which are returned to be learned."""
        schema, first = look(settings, source) if looked is None else looked
        try:
            session = cls(folder, settings, schema, {})
            session.files = [name if name == STDIN else str(Path(name).absolute()) for name in source.files]
            session._open({})
        except StreamError:
            source.close()
            raise
        return session, first

    @classmethod
    def resume(
        cls, folder: Path, *, model: str | None = None, open_outputs: bool = True
    ) -> tuple["Session", str | None]:
        """The run in this folder as its last whole checkpoint has it, and a warning where that is an older one."""
        found = checkpoint.find(folder)
        if found is None:
            raise StreamError(f"{folder}: there is no checkpoint to resume from")
        path, header, arrays, warning = found
        session = snapshot.load(cls, path, header, arrays, folder, model)
        if open_outputs:
            session._open(header["outputs"])
        return session, warning

    # -- running -------------------------------------------------------------------------------------------------------

    def run(
        self,
        source: Source,
        first: list[Rows],
        *,
        checkpoint_rows: int | None = None,
        checkpoint_seconds: float | None = 30.0,
        stop: Callable[[], bool] = lambda: False,
        report: Callable[["Session"], None] = lambda session: None,
    ) -> bool:
        """Learn to the end of the source; False where `stop` asked to end before. A checkpoint is left either way."""
        source.read_ahead(self.schema.all_numbers)
        source.stop = stop
        saved_at, saved_rows = time.monotonic(), self.counts.read
        try:
            self.save()
            for rows in _chain(first, source):
                earlier = len(self._pending)
                self._take(rows)
                for _ in range(min(earlier, len(self._pending))):
                    self._settle()  # these were learned while the rows just taken were read
                due = checkpoint_seconds is not None and time.monotonic() - saved_at >= checkpoint_seconds
                due = due or (checkpoint_rows is not None and self.counts.read - saved_rows >= checkpoint_rows)
                stopping = stop()
                if due or stopping:
                    self.save()
                    saved_at, saved_rows = time.monotonic(), self.counts.read
                report(self)
                if stopping:
                    return False
                self._check_rejects()
            self._finish()
        except Stopped:
            self.save()
            return False
        finally:
            source.close()
            for output in self.outputs.values():
                output.close()
        return True

    def _take(self, rows: Rows) -> None:
        encoded = self.encoder.encode(rows)
        self.counts.read += rows.read
        self.counts.skipped += rows.blank
        self._reject(encoded.rejects)
        self.position = rows.position
        if self.settings.id:
            encoded = self._match_ids(rows, encoded)
        present = ~np.isnan(encoded.targets).all(axis=1)
        learned = int(present.sum())
        self.counts.learned += learned
        self.counts.skipped += len(encoded.inputs) - learned
        if len(encoded.inputs):
            slots = self.fleet.slots(encoded.keys) if self.schema.key else None
            feed = self._delayed(self.feed(encoded)._replace(slots=slots))
            self._pending.append((self.fleet.run(feed), encoded))
        if rows.file == STDIN:
            self._settle_all()

    def _settle(self) -> None:
        """Wait for the oldest block, and write what it says, window by window."""
        pending, block = self._pending.popleft()
        outcomes = pending.wait()
        if "predictions" in self.outputs:
            self.outputs["predictions"].write(self.format.write(block.lines, outcomes.summary, block.targets))
        self.recent_inputs = np.concatenate([self.recent_inputs, block.inputs[-RECENT:]])[-RECENT:]
        first = 0
        while first < len(block.targets):
            part = slice(first, first + self.metrics.to_edge())
            rows = (outcomes.summary[part], outcomes.log_prob[part], block.targets[part], outcomes.weights[part])
            figures = self.metrics.add(np.concatenate(rows, axis=1))
            if figures is not None:
                self._write_figures(figures)
            first = part.stop

    def _settle_all(self) -> None:
        while self._pending:
            self._settle()
        for output in self.outputs.values():
            output.flush()

    def _write_figures(self, figures: Mapping[str, int | float]) -> None:
        cells = [repr(figures[name]) if name in figures else "" for name in self.metrics.names]
        self.outputs["metrics"].write(",".join(cells) + "\n")

    def _reject(self, rejects: list[Reject]) -> None:
        for reject in rejects:
            kind = reject.reason.partition(":")[0] if reject.reason.startswith("column") else reject.reason
            self.reasons[kind] = self.reasons.get(kind, 0) + 1
            self.outputs["rejects"].write(json.dumps(reject._asdict(), ensure_ascii=False) + "\n")
        self.counts.rejected += len(rejects)

    def _check_rejects(self) -> None:
        limit = self.settings.max_rejects
        if limit is not None and self.counts.rejected > limit:
            self.save()
            raise StreamError(
                f"{self.counts.rejected:,} of {self.counts.read:,} rows were rejected, "
                f"more than --max-rejects {limit:,}; see {self.outputs['rejects'].path}"
            )

    def feed(self, encoded: Encoded) -> Feed:
        """These rows as the loop takes them, with the places where new sequences start."""
        resets = None
        if self.schema.sequence is not None:
            resets = np.zeros(len(encoded.inputs), bool)
            keys = encoded.keys or [""] * len(resets)
            for row, (key, sequence) in enumerate(zip(keys, encoded.sequences, strict=True)):
                resets[row] = self.sequences.get(key, sequence) != sequence
                self.sequences[key] = sequence
        return Feed(inputs=encoded.inputs, targets=encoded.targets, resets=resets)

    def _delayed(self, feed: Feed) -> Feed:
        """With each row, where labels are delayed, the row `label_delay` before it, of whatever key, or nothing."""
        if not self.settings.label_delay:
            return feed
        slots = np.zeros(len(feed.inputs), np.int32) if feed.slots is None else feed.slots
        rows = np.column_stack([feed.inputs, feed.targets, slots])
        arrived = np.full(rows.shape, np.nan)
        arrived[:, -1] = 0
        for position, row in enumerate(rows):
            self.queue.append(row)
            if len(self.queue) > self.settings.label_delay:
                arrived[position] = self.queue.popleft()
        return self._with_late(feed, arrived)

    def _with_late(self, feed: Feed, arrived: np.ndarray) -> Feed:
        late_slots = None if feed.slots is None else arrived[:, -1].astype(np.int32)
        return feed._replace(late=arrived[:, :-1], late_slots=late_slots)

    def _match_ids(self, rows: Rows, encoded: Encoded) -> Encoded:
        """Hold rows without a label under their id; give a label that comes later its row's features back."""
        assert self.settings.id is not None
        lines = {int(line): row for row, line in enumerate(rows.lines)}
        column = rows.columns.get(self.settings.id)
        inputs = encoded.inputs.copy()
        for row, line in enumerate(encoded.lines):
            name = "" if column is None else str(column[lines[int(line)]])
            if np.isnan(encoded.targets[row]).all():
                self.held[name] = inputs[row].copy()
                if len(self.held) > HELD:
                    self.held.popitem(last=False)
            elif name in self.held:
                inputs[row] = self.held.pop(name)
        return encoded._replace(inputs=inputs, rejects=[])

    def _finish(self) -> None:
        """The end: labels still under way arrive, and the last window is written as far as it goes."""
        self._settle_all()
        if self.queue:
            left = np.stack(self.queue)
            self.queue.clear()
            idle = Feed(
                inputs=np.full((len(left), self.encoder.width), np.nan),
                targets=np.full((len(left), len(self.laws)), np.nan),
                slots=np.zeros(len(left), np.int32) if self.schema.key else None,
            )
            self.fleet.run(self._with_late(idle, left))
        self.save()
        figures = self.metrics.close()
        if figures is not None:
            self._write_figures(figures)
        for output in self.outputs.values():
            output.flush(sync=True)

    # -- on disk -------------------------------------------------------------------------------------------------------

    def _open(self, lengths: Mapping[str, int]) -> None:
        paths = {"rejects": self.folder / "rejects.jsonl", "metrics": self.folder / "metrics.csv"}
        if self.settings.metrics:
            paths["metrics"] = Path(self.settings.metrics)
        if self.settings.predictions:
            paths["predictions"] = Path(self.settings.predictions)
        first = {"metrics": ",".join(self.metrics.names) + "\n", "predictions": self.format.header, "rejects": ""}
        inputs = {Path(name).resolve() for name in self.files if name != STDIN}
        for name, path in paths.items():
            if path.resolve() in inputs:
                raise StreamError(f"{path}: is the data itself; name another file for the {name}")
        for name, path in paths.items():
            self.outputs[name] = Appender(path, int(lengths.get(name, 0)), first[name])

    def save(self) -> Path:
        """A checkpoint of everything up to the last row taken, its output files on disk before it."""
        self._settle_all()
        for output in self.outputs.values():
            output.flush(sync=True)
        return checkpoint.write(self.folder, snapshot.header(self), snapshot.arrays(self))


def _with_fixed_classes(schema: Schema) -> Schema:
    """The schema with the classes of the first rows only: the learner of a session has a fixed number of outputs."""
    for target in schema.targets:
        if len(target.classes) == 1:
            raise StreamError(
                f"target {target.name!r} has one class in the first rows ({target.classes[0]}): "
                "name all of them with --classes"
            )
    return dataclasses.replace(schema, targets=tuple(dataclasses.replace(one, limit=0) for one in schema.targets))


def _chain(first: list[Rows], source: Source) -> Iterator[Rows]:
    """The rows already read, then the others."""
    yield from first
    while (rows := source.read()) is not None:
        yield rows


def check_memory(settings: Settings) -> None:
    """Refuse what only makes sense for a model with memory, or only for one without."""
    if not has_memory(settings.model):
        if settings.sequence is not None:
            raise StreamError("--sequence: is for models with memory (--model rnn:32, gru:32 or lstm:32)")
    elif settings.label_delay or settings.id:
        option = "--label-delay" if settings.label_delay else "--id"
        raise StreamError(f"{option}: a model with memory must learn the rows in their order; use one without")
