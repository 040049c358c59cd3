"""The one writer of a served run: its queue, the log, checkpoints and the end."""

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

from natkal.errors import CheckpointError, StreamError
from natkal.runs import checkpoint
from natkal.serve.requests import Request
from natkal.serve.restoring import command_of, restored
from natkal.serve.rows import Refused, read_rows
from natkal.serve.served import Served
from natkal.serve.traffic import memory_bytes
from natkal.serve.versions import Version, Versions, version_of
from natkal.settings.serve import Limits
from natkal.storage.journal import Journal, Record
from natkal.tables.engine.live_table import MANY_ROWS

GROUP_ROWS = MANY_ROWS
"""Requests are learned together up to about this many rows."""
SEGMENT_BYTES = 256 << 20
"""A log segment of this size calls for a checkpoint."""
DURABILITY = ("none", "group", "each")


@dataclasses.dataclass(frozen=True)
class Order:
    """Something else for the writer to do between blocks: the call, and where its result goes."""

    call: Callable[[], Any]
    result: "Future[Any]"


class Service:
    """A run that is served. `start` it, then `submit` from any thread; `close` writes a checkpoint."""

    def __init__(
        self,
        run: Path,
        fresh: Callable[[Limits], Served],
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
        self._writing: Future[None] | None = None
        self._background = ThreadPoolExecutor(1, "natkal-checkpoint")
        self._thread = threading.Thread(target=self._write, name="natkal-writer", daemon=True)
        self._saved_at = time.monotonic()
        self._started = time.time()
        self.record, self.replayed = 0, 0
        self._load(fresh)

    # -- starting ------------------------------------------------------------------------------------------------------

    def _load(self, fresh: Callable[[Limits], Served]) -> None:
        """The newest checkpoint and all that was acknowledged after it; or the run as another command left it."""
        found = self.versions.newest()
        if found is None:
            self.served = fresh(self.limits)
        else:
            self._check_untouched()
            self.replayed = self._restore(*found)
        for number in self.versions.numbers()[-self.versions.keep :]:
            with contextlib.suppress(StreamError):
                self.known_versions.append(version_of(self.versions.read(number)[0]))
        self._save(wait=True)

    def _restored(self, number: int, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Served:
        return restored(self.versions.path(number), header, arrays, self.run, self.limits, self._model)

    def _check_untouched(self) -> None:
        """Refuse a run that another command went on with after it was served: one of the two would be lost."""
        try:
            own = checkpoint.find(self.run)
        except CheckpointError:
            return  # damaged, and none that another command could have gone on with
        if own is not None and "served" not in own[1]:
            raise StreamError(
                f"{self.run}: {command_of(own[1])} went on with it after it was served; serve a copy of the run "
                f"without its folder {self.versions.folder.name}, or remove {own[0].name} to go on with what "
                "the server learned"
            )

    def _restore(self, number: int, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> int:
        """This checkpoint, and all that was acknowledged after it learned again; how many requests that was."""
        self.served = self._restored(number, header, arrays)
        self.record = version_of(header).record
        replayed, requests = 0, list[Request]()
        for found in self.versions.records_after(number, self.record):
            rows, single = read_rows(found.body, 1 << 62)
            requests.append(Request(found.kind, found.body, rows, single))
            self.record, replayed = found.number, replayed + 1
            if sum(len(request.rows) for request in requests) >= GROUP_ROWS:
                self._again(requests)
                requests = []
        if requests:
            self._again(requests)
        return replayed

    def _again(self, requests: list[Request]) -> None:
        self.served.run(requests, lambda accepted: None)
        for request in requests:
            if request.refused is not None:
                raise StreamError(f"the log holds a request that cannot be learned: {request.refused.reason}")

    def start(self, *, warm_up: bool = True) -> None:
        """Compile what requests will need, then take them."""
        if warm_up:
            self.served.warm_up()
        self._thread.start()
        self.ready = True

    @property
    def waiting_rows(self) -> int:
        """Rows that the writer has not taken yet."""
        return self._submitted_rows - self._taken_rows

    # -- readers -------------------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Everything `/state` says apart from traffic, as of now."""
        served = self.served
        return {
            "run": self.name,
            **served.facts(),
            "ids": {"column": served.id_column, "waiting": served.waiting_ids, "given_up": served.given_up},
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
        self.check(request.kind)
        self._check_learning()
        if self.waiting_rows >= self.limits.waiting_rows:
            raise Refused(429, f"{self.waiting_rows:,} rows wait to be learned; try again later")
        self._submitted_rows += len(request.rows)
        self._queue.put(request)

    def check(self, kind: int) -> None:
        """Refuse what this run is not for."""
        if kind not in self.served.kinds:
            raise Refused(409, self.served.refusal)

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
        record, length = self.record, self.journal.length
        try:
            self._check_learning()
            self.served.run(taken, self._log)
        except OSError as error:
            self.failed = f"the log cannot be written ({error.strerror or error}); nothing more is learned"
            _refuse(taken, Refused(503, self.failed))
        except Refused as refused:
            _refuse(taken, refused)
        except Exception as error:
            reason = f"learning failed ({type(error).__name__}: {error})"
            self.failed = self._forget(record, length)
            status = 503 if self.failed else 422 if isinstance(error, StreamError) else 500
            _refuse(taken, Refused(status, f"{reason}; {self.failed or 'nothing of it is kept'}"))
        for request in taken:
            request.done(request)

    def _forget(self, record: int, length: int) -> str:
        """The state and the log before a group that failed half way; why that cannot be had, empty if it can."""
        try:
            self.wait_for_checkpoint()
            self.journal.cut(length)
            found = self.versions.newest()
            assert found is not None
            for output in self.served.outputs:
                output.close()
            self._restore(*found)
            assert self.record == record
            if self.ready:
                self.served.warm_up()
        except Exception as error:
            return f"the state before cannot be restored ({error}); nothing more is learned"
        return ""

    def _check_learning(self) -> None:
        if self.failed:
            raise Refused(503, self.failed)

    def _log(self, accepted: list[Request]) -> None:
        """Every accepted request is on disk before its answer; meanwhile it is being learned."""
        for request in accepted:
            self.journal.add(Record(self.record + 1, request.kind, request.body))
            self.record += 1
        if accepted:
            self.journal.write(sync=self.durability != "none")

    def _obey(self, order: Order) -> None:
        try:
            order.result.set_result(order.call())
        except Exception as error:
            order.result.set_exception(error)

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
        number = self.versions.following()
        header, arrays = self.served.snapshot()
        version = Version(number, self.record, self.served.learned, time.time(), rolled_back_to)
        header = header | {"served": version.to_json()}
        journal = self.versions.journal(number)
        if hasattr(self, "journal"):
            self.journal.close()
        self.journal: Journal = journal
        outputs = self.served.outputs

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
        self._check_learning()
        return self._save(wait=True)

    def rollback(self, number: int) -> Version:
        """Serve the state of an earlier checkpoint from now on. Writer thread only: use `order`.

        The state now is kept as a checkpoint before, so that this can be undone.
        """
        self._check_learning()
        self._save(wait=True)
        if number not in self.versions.numbers():
            known = ", ".join(map(str, self.versions.numbers()))
            raise Refused(404, f"there is no checkpoint {number}; there are {known}")
        header, arrays = self.versions.read(number)
        for output in self.served.outputs:
            output.close()
        served = self._restored(number, header, arrays)
        if self.ready:
            served.warm_up()
        self.served = served
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
        for output in self.served.outputs:
            output.close()
        self._background.shutdown()
        return version


def _refuse(requests: list[Request], refused: Refused) -> None:
    for request in requests:
        request.answer, request.refused = None, refused
