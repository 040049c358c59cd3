"""The one writer, the view that readers use, checkpoints and the end. Threads meet here only."""

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from natkal.app.serve.figures import Alarms, Series, session_facts
from natkal.app.serve.journal import Journal, Record
from natkal.app.serve.rows import Refused, read_rows
from natkal.app.serve.traffic import memory_bytes
from natkal.app.serve.versions import Version, Versions, version_of
from natkal.app.serve.work import KINDS, PREDICT, Block, Limits, Request, Work, told_of
from natkal.app.session import checkpoint, snapshot
from natkal.app.session.metrics import record
from natkal.app.session.session import Session
from natkal.tabular.errors import CheckpointError, StreamError
from natkal.tabular.live_table import MANY_ROWS, Reader
from natkal.tabular.loop import Told
from natkal.tabular.schema import Target

GROUP_ROWS = MANY_ROWS
"""Requests are learned together up to about this many rows."""
SCORE_ROWS = 512
"""Rows are counted into the metrics in blocks of this size: adding to a window copies it."""
SEGMENT_BYTES = 256 << 20
"""A log segment of this size calls for a checkpoint."""
DURABILITY = ("none", "group", "each")


@dataclasses.dataclass(frozen=True)
class View:
    """What readers use: a whole state, and the targets with the classes known in it."""

    reader: Reader
    targets: tuple[Target, ...]


@dataclasses.dataclass(frozen=True)
class Order:
    """Something else for the writer to do between blocks: the call, and where its result goes."""

    call: Callable[[], Any]
    result: "Future[Any]"


class Service:
    """A run that is served. `start` it, then `submit` and `predict` from any thread; `close` writes a checkpoint."""

    def __init__(
        self,
        run: Path,
        fresh: Callable[[], Session],
        *,
        limits: Limits | None = None,
        durability: str = "group",
        checkpoint_seconds: float = 30.0,
        keep: int = 5,
        model: str | None = None,
    ):
        self.run, self.name = run, run.absolute().name
        self.limits = limits or Limits()
        self.durability = durability
        self.checkpoint_seconds = checkpoint_seconds
        self.versions = Versions(run, keep)
        self.known_versions: list[Version] = []
        self.failed = ""
        """Why nothing can be learned any more; empty while all is well."""
        self.ready = False
        self._submitted_rows = self._taken_rows = 0
        self._model = model
        self._queue: queue.SimpleQueue[Request | Order | None] = queue.SimpleQueue()
        self._figures = threading.Lock()
        self._unscored: list[Block] = []
        self._unscored_rows = 0
        self._writing: Future[None] | None = None
        self._background = ThreadPoolExecutor(1, "natkal-checkpoint")
        self._thread = threading.Thread(target=self._write, name="natkal-writer", daemon=True)
        self._members: np.ndarray | None = None
        self._saved_at = time.monotonic()
        self._started = time.time()
        self.record, self.replayed = 0, 0
        self._load(fresh)

    # -- starting ------------------------------------------------------------------------------------------------------

    def _load(self, fresh: Callable[[], Session]) -> None:
        """The newest checkpoint and all that was acknowledged after it; or the run as `natkal learn` left it."""
        found = self.versions.newest()
        if found is None:
            self._take(fresh())
        else:
            number, header, arrays = found
            self._check_untouched()
            self._take(self._restored(number, header, arrays))
            self.record = version_of(header).record
            self._replay(number)
        for number in self.versions.numbers()[-self.versions.keep :]:
            with contextlib.suppress(StreamError):
                self.known_versions.append(version_of(self.versions.read(number)[0]))
        self._score(all_of_them=True)
        self._save(wait=True)

    def _restored(self, number: int, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Session:
        session = Session.restored(self.versions.path(number), header, arrays, self.run, self._model)
        session.open_outputs(header["outputs"])
        return session

    def _check_untouched(self) -> None:
        """Refuse a run that `natkal learn` went on with after it was served: one of the two would be lost."""
        try:
            own = checkpoint.find(self.run)
        except CheckpointError:
            return  # damaged, and none that `natkal learn` could have gone on with
        if own is not None and "served" not in own[1]:
            raise StreamError(
                f"{self.run}: natkal learn went on with it after it was served; serve a copy of the run without its "
                f"folder {self.versions.folder.name}, or remove {own[0].name} to go on with what the server learned"
            )

    def _take(self, session: Session) -> None:
        """Serve this session from now on."""
        work = Work(session, self.limits)
        if self.ready:
            work.table.warm_up()
        with self._figures:
            self._unscored.clear()
            self._unscored_rows = 0
            self.session, self.work = session, work
            self.series, self.alarms = Series(session), Alarms()
        self._publish()

    def _replay(self, number: int) -> None:
        """Learn again what was acknowledged after the checkpoint, as it was learned then."""
        requests: list[Request] = []
        for found in self.versions.records_after(number, self.record):
            rows, single = read_rows(found.body, 1 << 62)
            requests.append(Request(found.kind, found.body, rows, single))
            self.record, self.replayed = found.number, self.replayed + 1
            if sum(len(request.rows) for request in requests) >= GROUP_ROWS:
                self._again(requests)
                requests = []
        if requests:
            self._again(requests)

    def _again(self, requests: list[Request]) -> None:
        self._add(self.work.run(requests, lambda accepted: None))
        self._score()
        for request in requests:
            if request.refused is not None:
                raise StreamError(f"the log holds a request that cannot be learned: {request.refused.reason}")

    def start(self, *, warm_up: bool = True) -> None:
        """Compile what requests will need, then take them."""
        if warm_up:
            self.work.table.warm_up()
        with self._figures:
            session_facts(self.session, self.series, self.alarms, None)
        self._publish()
        self._thread.start()
        self.ready = True

    @property
    def waiting_rows(self) -> int:
        """Rows that the writer has not taken yet."""
        return self._submitted_rows - self._taken_rows

    # -- readers -------------------------------------------------------------------------------------------------------

    def predict(self, rows: list[dict[str, Any]]) -> tuple[tuple[Target, ...], Told]:
        """Predictions from the last whole state; nothing is kept."""
        columns, view = self.work.columns, self.view
        encoded = columns.encode(rows, targets=False, grow=False)
        resets = None
        if self.session.schema.sequence is not None:
            keys = encoded.keys or [""] * len(rows)
            last = self.session.sequences
            resets = np.array([last.get(k, s) != s for k, s in zip(keys, encoded.sequences, strict=True)])
        return view.targets, view.reader.predict(encoded.inputs, encoded.keys, resets)

    def facts(self) -> dict[str, Any]:
        """Everything `/state` says apart from traffic, as of now."""
        with self._figures:
            self._score(all_of_them=True, locked=True)
            found = session_facts(self.session, self.series, self.alarms, self._members)
            held = len(self.session.held)
        return {
            "run": self.name,
            **found,
            "ids": {"column": self.work.columns.id, "waiting": held, "given_up": self.work.given_up},
            "durability": self.durability,
            "log": {"records": self.record, "bytes": self.journal.length, "replayed": self.replayed},
            "checkpoint": self.known_versions[-1].number,
            "checkpoints": [version.to_json() for version in self.known_versions],
            "memory_bytes": memory_bytes(),
            "waiting_rows": self.waiting_rows,
            "ready": self.ready and not self.failed,
            "failed": self.failed,
            "started": self._started,
            "time": time.time(),
        }

    # -- the writer ----------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Queue a request for the writer, which calls its `done` afterwards."""
        if self.failed:
            raise Refused(503, self.failed)
        if self.waiting_rows >= self.limits.waiting_rows:
            raise Refused(429, f"{self.waiting_rows:,} rows wait to be learned; try again later")
        self._submitted_rows += len(request.rows)
        self._queue.put(request)

    def order(self, call: Callable[[], Any]) -> "Future[Any]":
        """Have the writer do something between blocks."""
        result: Future[Any] = Future()
        self._queue.put(Order(call, result))
        return result

    def _write(self) -> None:
        with jax.enable_x64(True):
            while True:
                try:
                    first = self._queue.get(timeout=1.0)
                except queue.Empty:
                    self._between()
                    continue
                if first is None:
                    return
                group, rows, other = [], 0, None
                item: Request | Order | None = first
                while True:
                    if not isinstance(item, Request):
                        other = item
                        break
                    group.append(item)
                    rows += len(item.rows)
                    if rows >= GROUP_ROWS or self.durability == "each":
                        break
                    try:
                        item = self._queue.get_nowait()
                    except queue.Empty:
                        break
                self._group(group, rows)
                if isinstance(other, Order):
                    self._obey(other)
                elif group and not isinstance(item, Request):
                    return
                self._between()

    def _group(self, group: list[Request], rows: int) -> None:
        """Learn what waits, write it to the log, answer."""
        self._taken_rows += rows
        taken = [request for request in group if request.take()]
        if not taken:
            return
        try:
            if self.failed:
                raise Refused(503, self.failed)
            blocks = self.work.run(taken, self._log)
            self._publish()
            with self._figures:
                self._add(blocks)
                self._score(locked=True)
        except OSError as error:
            self._fail(f"the log cannot be written ({error.strerror or error}); nothing more is learned", taken)
        except Refused as refused:
            for request in taken:
                request.refused = refused
        except Exception as error:
            self._fail(f"learning failed ({type(error).__name__}: {error}); nothing more is learned", taken)
        for request in taken:
            request.done(request)

    def _fail(self, reason: str, taken: list[Request]) -> None:
        self.failed = reason
        for request in taken:
            request.answer, request.refused = None, Refused(503, reason)

    def _log(self, accepted: list[Request]) -> None:
        """Every accepted request is on disk before its answer; meanwhile it is being learned."""
        for request in accepted:
            self.journal.add(Record(self.record + 1, request.kind, request.body))
            self.record += 1
        if accepted:
            self.journal.write(sync=self.durability != "none")

    def _publish(self) -> None:
        self.view = View(self.work.table.reader(), self.work.known_targets)

    def _obey(self, order: Order) -> None:
        try:
            order.result.set_result(order.call())
        except Exception as error:
            order.result.set_exception(error)

    def _add(self, blocks: list[Block]) -> None:
        self._unscored += blocks
        self._unscored_rows += sum(len(block.inputs) for block in blocks)

    def _score(self, *, all_of_them: bool = False, locked: bool = False) -> None:
        """Count what blocks told into the metrics, many rows at a time."""
        if not self._unscored_rows or (self._unscored_rows < SCORE_ROWS and not all_of_them):
            return
        with contextlib.nullcontext() if locked else self._figures:
            for blocks in _alike(self._unscored):
                told: Told = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[told_of(block) for block in blocks])
                inputs = np.concatenate([block.inputs for block in blocks])
                observed = np.concatenate([block.observed for block in blocks])
                targets = blocks[-1].targets
                self.session.score(inputs, observed, targets, told)
                self.alarms.add(record(targets[0], told.outcomes[0], observed[:, 0]), self.session.metrics.row)
                self._members = told.members[-1]
            self._unscored.clear()
            self._unscored_rows = 0

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _between(self) -> None:
        """A checkpoint, where one is due."""
        due = time.monotonic() - self._saved_at >= self.checkpoint_seconds or self.journal.length > SEGMENT_BYTES
        writing = self._writing is not None and not self._writing.done()
        if due and self.journal.length and not writing and not self.failed:
            try:
                self._save()
            except (OSError, StreamError) as error:
                self.failed = f"no checkpoint can be written ({error}); nothing more is learned"

    def _save(self, *, wait: bool = False, rolled_back_to: int | None = None) -> Version:
        """Begin a checkpoint and a log segment with this state; the checkpoint is written in the background."""
        self.wait_for_checkpoint()
        session = self.session
        with self._figures:
            self._score(all_of_them=True, locked=True)
            self.work.table.store()
            for output in session.outputs.values():
                output.flush()
            number = self.versions.following()
            version = Version(number, self.record, session.counts.learned, time.time(), rolled_back_to)
            header = snapshot.header(session) | {"served": version.to_json()}
            arrays = snapshot.arrays(session)
        journal = self.versions.journal(number)
        if hasattr(self, "journal"):
            self.journal.close()
        self.journal: Journal = journal
        outputs = list(session.outputs.values())

        def write() -> None:
            for output in outputs:
                output.flush(sync=True)
            self.versions.write(header, arrays)
            self.known_versions = [*self.known_versions, version][-self.versions.keep :]

        self._writing = self._background.submit(write)
        self._saved_at = time.monotonic()
        if wait:
            self.wait_for_checkpoint()
        return version

    def wait_for_checkpoint(self) -> None:
        """Until the checkpoint being written is on disk; raises what went wrong with it."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def checkpoint(self) -> Version:
        """Write a checkpoint now. Writer thread only: use `order`."""
        return self._save(wait=True)

    def rollback(self, number: int) -> Version:
        """Serve the state of an earlier checkpoint from now on. Writer thread only: use `order`.

        The state now is kept as a checkpoint before, so that this can be undone.
        """
        self._save(wait=True)
        if number not in self.versions.numbers():
            known = ", ".join(map(str, self.versions.numbers()))
            raise Refused(404, f"there is no checkpoint {number}; there are {known}")
        header, arrays = self.versions.read(number)
        for output in self.session.outputs.values():
            output.close()
        self._take(self._restored(number, header, arrays))
        return self._save(wait=True, rolled_back_to=number)

    def close(self) -> Version:
        """Learn what waits, write a checkpoint, end. Requests that come later are refused."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        failed, self.failed = self.failed, self.failed or "the server is ending"
        self.ready = False
        if failed:
            raise StreamError(failed)
        version = self.known_versions[-1] if not self.journal.length else self._save(wait=True)
        self.wait_for_checkpoint()
        self.journal.close()
        for output in self.session.outputs.values():
            output.close()
        self._background.shutdown()
        return version


def _alike(blocks: list[Block]) -> list[list[Block]]:
    """Blocks in runs whose arrays have the same shapes: classes may have been added in between."""
    runs: list[list[Block]] = []
    for block in blocks:
        shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(told_of(block))]
        if (
            runs
            and runs[-1][-1].targets is block.targets
            and shapes == [leaf.shape[1:] for leaf in jax.tree.leaves(told_of(runs[-1][-1]))]
        ):
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs


__all__ = ["DURABILITY", "KINDS", "PREDICT", "Service"]
