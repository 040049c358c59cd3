"""The live page on a running `natkal learn --live`: the run tells its figures once a second, a thread serves them."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

from natkal.runs.session import Session
from natkal.serve.figures import Alarms, Series, session_facts
from natkal.serve.http import Access, Application, Receive, Send
from natkal.serve.rows import Refused
from natkal.serve.server import listen
from natkal.serve.traffic import memory_bytes
from natkal.settings.serve import Limits

SECONDS = 1.0
"""How often a run tells its figures."""
PAGES = frozenset({"/", "/events", "/state", "/healthz"})


class LivePage(Application):
    """The page and its figures, and nothing else."""

    def __init__(self) -> None:
        super().__init__(Access(), Limits())
        self._figures: dict[str, Any] | None = None
        self._series: Series | None = None
        self._alarms = Alarms()
        self._started = self._last = time.time()
        self._next = 0.0
        self._rows_read = 0
        self._rate = 0.0

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and (scope["method"] != "GET" or scope["path"] not in PAGES):
            scope = {**scope, "method": "GET", "path": "/no such path"}
        await super().__call__(scope, receive, send)

    def running(self) -> Any:
        """Figures are there once the first rows are learned."""
        if self._figures is None:
            raise Refused(503, "no rows have been learned yet")
        return self

    async def facts(self) -> bytes:
        """The last figures, with the time now."""
        import orjson

        self.running()
        return orjson.dumps({**(self._figures or {}), "time": time.time()}, option=orjson.OPT_NON_STR_KEYS)

    def tell(self, session: Session, *, finished: bool = False) -> None:
        """Take the figures of the run; called by the thread that learns, between two blocks."""
        now = time.monotonic()
        if now < self._next and not finished:
            return
        self._next = now + SECONDS
        self._series = self._series or Series(session)
        metrics, new = session.metrics, session.counts.read - self._rows_read
        if new:
            self._rate = new / max(time.time() - self._last, 1e-3)
            self._last, self._rows_read = time.time(), session.counts.read
        fresh = metrics.recent[len(metrics.recent) - min(new, len(metrics.recent)) :]
        if len(fresh):
            self._alarms.add(metrics.columns(fresh, 0), metrics.row)
        self._figures = {
            "run": session.folder.name,
            **session_facts(session, self._series, self._alarms, metrics.recent_members),
            "ids": {"column": session.settings.id, "waiting": len(session.held), "given_up": 0},
            "checkpoint": None,
            "checkpoints": [],
            "memory_bytes": memory_bytes(),
            "failed": "",
            "finished": finished,
            "started": self._started,
            "traffic": {
                "requests_per_second": None,
                "rows_per_second": self._rate,
                "latency_ms": {"p50": None, "p99": None},
                "refused": session.counts.rejected,
                "refusals": dict(session.reasons),
                "last_request": self._last if self._rows_read else None,
            },
        }


@contextlib.contextmanager
def live_page(port: int = 0) -> Iterator[tuple[LivePage, str]]:
    """The page and its address, while the body runs; open pages get the last figures before it ends."""
    page = LivePage()
    listening: socket.socket = listen("127.0.0.1", port)
    config = uvicorn.Config(
        page,  # pyright: ignore[reportArgumentType]
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(server.serve(sockets=[listening])), name="natkal-page", daemon=True
    )
    thread.start()
    try:
        yield page, f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        time.sleep(1.5 * SECONDS if page._pages else 0)
        loop.call_soon_threadsafe(page.ending.set)
        server.should_exit = True
        thread.join(10)
