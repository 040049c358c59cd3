"""The ASGI application: who may ask, how much, and which route answers."""

import asyncio
import hmac
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from natkal.runs.answers import as_rows
from natkal.serve import v2
from natkal.serve.openapi import document
from natkal.serve.page import page
from natkal.serve.requests import KINDS, PREDICT, Request
from natkal.serve.rows import Refused, read_rows
from natkal.serve.service import Service
from natkal.serve.traffic import Traffic, memory_bytes, prometheus
from natkal.settings.serve import Limits
from natkal.tables.engine.live_table import ASKED_ROWS

OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/v2/health/live", "/v2/health/ready"})
"""Routes that tell nothing of the data and need no token."""
PAGES = 32
"""How many live pages may be open at once."""
TICK = 1.0
"""Seconds between two events of a live page."""
STARTING = "the server is starting: programs are being compiled"
JSON = [(b"content-type", b"application/json")]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Access:
    """Who may ask. `hosts`: the names this machine is asked by where there is no token; none checks nothing."""

    token: bytes | None = None
    hosts: frozenset[str] = frozenset({"127.0.0.1", "localhost", "[::1]", "testserver"})

    def check(self, scope: dict[str, Any]) -> None:
        """Refuse a request without the token, or, where there is none, one that another site's page may have made."""
        headers = dict(scope["headers"])
        if self.token is not None:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self.token) and scope["path"] not in OPEN:
                raise Refused(401, "a bearer token is needed: Authorization: Bearer ...")
            return
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if self.hosts and name not in self.hosts:
            raise Refused(403, f"the host {name!r:.60} is not this machine")
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin.decode("latin-1").lower()).netloc != host:
            raise Refused(403, "the request comes from a page of another site")


class Application:
    """`app(scope, receive, send)`. `service` is None until the run is loaded."""

    def __init__(self, access: Access, limits: Limits):
        self.service: Service | None = None
        self.access, self.limits = access, limits
        self.traffic = Traffic()
        self.ending = asyncio.Event()
        self._finished: deque[Request] = deque()
        self._scheduled = False
        self._pool = ThreadPoolExecutor(2, "natkal-reader")
        self._pages = 0
        self._facts: tuple[float, bytes] = (0.0, b"")
        self._one_at_a_time = asyncio.Lock()
        get = lambda path, handler: Route(path, handler, methods=["GET"])  # noqa: E731
        post = lambda path, handler: Route(path, handler, methods=["POST"])  # noqa: E731
        routes = [
            get("/", self._page),
            get("/healthz", self._alive),
            get("/readyz", self._ready),
            get("/state", self._state),
            get("/events", self._events),
            get("/metrics", self._metrics),
            get("/openapi.json", self._openapi),
            post("/rollback", self._rollback),
            post("/checkpoint", self._checkpoint),
            get("/v2/health/live", self._alive),
            get("/v2/health/ready", self._ready),
            get("/v2/models/{name}", self._model),
            get("/v2/models/{name}/ready", self._ready),
            post("/v2/models/{name}/infer", self._infer),
        ]
        self._rest = Starlette(routes=routes, exception_handlers={HTTPException: _failed, Refused: _refused})
        self._rest.router.redirect_slashes = False
        self._routes = {route.path for route in routes}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        path: str = scope["path"]
        kind = KINDS.get(path[1:]) if scope["method"] == "POST" else None
        rows = 0
        try:
            self.access.check(scope)
            if kind is None:
                await self._others(scope, receive, send, started)
                return
            status, body, rows = await self._rows(kind, scope, receive)
            headers = JSON
        except Refused as refused:
            status, body, headers = self._refusal(refused)
        except _Disconnected:
            return
        await _send(send, status, body, headers)
        self.traffic.note(path if kind is not None else "other", status, time.perf_counter() - started, rows)

    def _refusal(self, refused: Refused) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        self.traffic.refuse(refused.reason, refused.status)
        return refused.status, orjson.dumps({"error": refused.reason}), JSON + _extra(refused.status)

    async def _others(self, scope: dict[str, Any], receive: Receive, send: Send, started: float) -> None:
        """Everything that is not rows."""
        status = 0

        async def noted(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        scope["application"] = self
        await self._rest(scope, receive, noted)  # pyright: ignore[reportArgumentType]
        path = scope["path"] if scope["path"] in self._routes else "other"
        self.traffic.note(path, status, time.perf_counter() - started)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def running(self) -> Service:
        """The service, once it is ready."""
        if self.service is None:
            raise Refused(503, STARTING)
        return self.service

    async def _rows(self, kind: int, scope: dict[str, Any], receive: Receive) -> tuple[int, bytes, int]:
        service = self.running()
        service.check(kind)
        body = await self.body(scope, receive)
        rows, single = read_rows(body, self.limits.rows)
        column = service.served.id_column
        if kind == PREDICT and not any(column in row for row in rows):
            found = as_rows(await self._told(service, rows))
            return 200, orjson.dumps(found[0] if single else {"predictions": found}), len(rows)
        request = Request(kind, body, rows, single)
        answer = await self._learned(service, request)
        return 200, orjson.dumps(answer), len(rows)

    async def _told(self, service: Service, rows: list[dict[str, Any]]) -> Any:
        if len(rows) <= ASKED_ROWS:
            return service.served.predict(rows)
        return await asyncio.get_running_loop().run_in_executor(self._pool, service.served.predict, rows)

    async def _learned(self, service: Service, request: Request) -> Any:
        """Hand a request to the writer and wait; given up where the writer has not taken it in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def done(request: Request) -> None:  # in the writer's thread
            self._finished.append(request)
            if not self._scheduled:
                self._scheduled = True
                loop.call_soon_threadsafe(self._deliver)

        def too_late() -> None:
            if request.take():
                future.set_exception(Refused(429, f"not learned within {self.limits.seconds:g} s; try again later"))

        request.done, request.future = done, future
        service.submit(request)
        timer = loop.call_later(self.limits.seconds, too_late)
        try:
            await future
        finally:
            timer.cancel()
            request.done, request.future = _nobody, None  # no cycle is left for the collector
        if request.refused is not None:
            raise request.refused
        return request.answer

    def _deliver(self) -> None:
        self._scheduled = False
        while self._finished:
            future = self._finished.popleft().future
            if future is not None and not future.done():
                future.set_result(None)

    async def body(self, scope: dict[str, Any], receive: Receive) -> bytes:
        """The whole body, if it is not too large; `guard.py` sees to it that it comes in time."""
        most = self.limits.body_bytes
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value[:20]) > most):
                raise Refused(413, f"the body is larger than {most:,} bytes")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise Refused(413, f"the body is larger than {most:,} bytes")
            parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    # -- the rest ------------------------------------------------------------------------------------------------------

    async def _page(self, request: HttpRequest) -> Response:
        return HTMLResponse(page(), headers={"content-security-policy": POLICY, "x-frame-options": "DENY"})

    async def _alive(self, request: HttpRequest) -> Response:
        return _json({"live": True})

    async def _ready(self, request: HttpRequest) -> Response:
        service = self.service
        if service is None or service.failed or self.ending.is_set():
            reason = STARTING if service is None else service.failed or "the server is ending"
            return _json({"ready": False, "error": reason}, 503)
        return _json({"ready": True, "name": service.name})

    async def facts(self) -> bytes:
        """What `/state` says, as of now."""
        service = self.running()
        found = await asyncio.get_running_loop().run_in_executor(self._pool, service.facts)
        return orjson.dumps(found | {"traffic": self.traffic.facts()}, option=orjson.OPT_NON_STR_KEYS)

    async def _state(self, request: HttpRequest) -> Response:
        return Response(await self.facts(), media_type="application/json")

    async def _events(self, request: HttpRequest) -> Response:
        self.running()
        if self._pages >= PAGES:
            raise Refused(429, f"{PAGES} live pages are open; try again later")
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def _stream(self) -> AsyncIterator[bytes]:
        self._pages += 1
        try:
            while not self.ending.is_set():
                async with self._one_at_a_time:
                    if time.monotonic() - self._facts[0] > 0.9 * TICK:
                        found = await self.facts()
                        self._facts = (time.monotonic(), found)
                yield b"data: " + self._facts[1] + b"\n\n"
                try:
                    async with asyncio.timeout(TICK):
                        await self.ending.wait()
                except TimeoutError:
                    pass
            yield b"event: end\ndata: {}\n\n"
        finally:
            self._pages -= 1

    async def _metrics(self, request: HttpRequest) -> Response:
        service = self.running()
        gauges = {
            "natkal_waiting_rows": ("Rows that wait to be learned.", float(service.waiting_rows)),
            "natkal_waiting_ids": ("Rows that wait for their label or reward.", float(service.served.waiting_ids)),
            "natkal_memory_bytes": ("Resident memory.", float(memory_bytes())),
            "natkal_checkpoint": ("Number of the last checkpoint.", float(service.known_versions[-1].number)),
            "natkal_ready": ("1 while rows can be learned.", float(not service.failed)),
        }
        counters = {
            "natkal_rows_learned": ("Rows learned since the run began.", float(service.served.learned)),
            "natkal_refused": ("Requests refused.", float(sum(self.traffic.refusals.values()))),
            "natkal_log_records": ("Requests in the log since the run began.", float(service.record)),
        }
        text = prometheus(self.traffic, gauges, counters)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _openapi(self, request: HttpRequest) -> Response:
        return _json(document({} if self.service is None else self.service.served.row_properties()))

    async def _rollback(self, request: HttpRequest) -> Response:
        service = self.running()
        rows, _ = read_rows(await self.body(request.scope, request.receive), 1)  # pyright: ignore[reportArgumentType]
        number = rows[0].get("checkpoint")
        if type(number) is not int or number < 0 or len(rows[0]) > 1:
            raise Refused(422, 'a body like {"checkpoint": 3} is needed; /state lists the checkpoints')
        version = await asyncio.wrap_future(service.order(lambda: service.rollback(number)))
        return _json(version.to_json())

    async def _checkpoint(self, request: HttpRequest) -> Response:
        service = self.running()
        version = await asyncio.wrap_future(service.order(service.checkpoint))
        return _json(version.to_json())

    async def _model(self, request: HttpRequest) -> Response:
        service = self._named(request)
        level = service.served.session.settings.level
        return _json(v2.model_metadata(service.name, service.served.schema, level))

    async def _infer(self, request: HttpRequest) -> Response:
        service = self._named(request)
        body = await self.body(request.scope, request.receive)  # pyright: ignore[reportArgumentType]
        asked, _ = read_rows(body, 1)
        rows = v2.rows_of_tensors(service.served.schema, asked[0], self.limits.rows)
        return _json(v2.tensors_of(service.name, await self._told(service, rows), asked[0].get("id")))

    def _named(self, request: HttpRequest) -> Service:
        service = self.running()
        if request.path_params["name"] != service.name:
            raise Refused(404, f"there is no model {request.path_params['name']!r:.60}; this one is {service.name!r}")
        return service


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


def _nobody(request: Request) -> None:
    """Nobody waits for this request any more."""


class _Disconnected(Exception):
    """The client is gone: there is nobody to answer."""


def _extra(status: int) -> list[tuple[bytes, bytes]]:
    if status in (429, 503):
        return [(b"retry-after", b"1")]
    if status == 401:
        return [(b"www-authenticate", b"Bearer")]
    return [(b"connection", b"close")] if status == 413 else []


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


async def _refused(request: HttpRequest, refused: Exception) -> Response:
    assert isinstance(refused, Refused)
    status, body, headers = request.scope["application"]._refusal(refused)
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})


async def _failed(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "there is no such path", 405: f"{request.method} is not for this path"}
    return _json({"error": words.get(error.status_code, error.detail)}, error.status_code)
