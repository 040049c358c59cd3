"""Served runs inside the test process; one schema, so that one compiled loop serves nearly all of them."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from natkal.cli.serve import fresh_run
from natkal.runs.session import Session
from natkal.runs.snapshot import snapshot
from natkal.serve.http import Access, Application
from natkal.serve.service import Service
from natkal.settings.serve import Limits
from natkal.settings.settings import Settings
from natkal.tables.schema.rows import Position, Rows

NAMES = ("a", "b", "colour", "y")
SETTINGS = Settings(targets=("y",), learner="single", model="linear", past="1")


def table(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Two numbers and a colour decide whether it is yes or no."""
    rng = np.random.default_rng(seed)
    rows = []
    for a, b in rng.normal(size=(count, 2)).round(4).tolist():
        colour = ("red", "green", "blue")[int(rng.integers(3))]
        score = 2 * a - b + (colour == "red") + rng.logistic()
        rows.append({"a": a, "b": b, "colour": colour, "y": "yes" if score > 0 else "no"})
    return rows


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def first_rows(folder: Path) -> Path:
    path = folder / "first.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in table(40, seed=9)))
    return path


def make_service(folder: Path, settings: Settings = SETTINGS, schema: Path | None = None, **options: Any) -> Service:
    """A run in `folder`, new or as it was left, that takes requests."""
    schema = schema or first_rows(folder)
    options = {"checkpoint_seconds": 1e9, "keep": 100} | options
    service = Service(folder / "run", lambda limits: fresh_run(folder / "run", limits, settings, schema), **options)
    service.start(warm_up=False)
    return service


class Client:
    """Requests from any thread to an application whose event loop is one of this process."""

    _loop = asyncio.new_event_loop()
    threading.Thread(target=_loop.run_forever, daemon=True).start()

    def __init__(self, app: Any):
        self.app = app
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://testserver")

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        asked = self._client.request(method, path, **options)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(600)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


def make_client(service: Service, access: Access | None = None) -> Client:
    app = Application(access or Access(), service.limits)
    app.service = service
    return Client(app)


def as_rows(rows: list[dict[str, Any]]) -> Rows:
    """Rows as a file of JSON lines would give them."""
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in NAMES if any(name in r for r in rows)}
    return Rows("rows", columns, np.arange(1, len(rows) + 1), [], 0, Position(0, 0, 0))


def alone(folder: Path, *blocks: list[dict[str, Any]]) -> Session:
    """What `natkal learn` makes of the rows, read in these blocks."""
    folder.mkdir()
    session = fresh_run(folder / "run", Limits(), SETTINGS, first_rows(folder)).session
    session.engine = session.learner
    for rows in blocks:
        session.take(as_rows(rows))
    session.save()
    for output in session.outputs.values():
        output.close()
    return session


def crash(service: Service) -> None:
    """End without a checkpoint: what a kill leaves on disk."""
    service._queue.put(None)
    service._thread.join()
    service.journal.close()
    service._background.shutdown()
    for output in service.served.outputs:
        output.close()


def state(session: Session) -> dict[str, Any]:
    """All that decides the next row, and all that was counted: arrays as bytes."""
    header, arrays = snapshot(session)
    kept = {name: header[name] for name in ("counts", "learner", "vocabularies", "held", "metrics", "sequences")}
    return {"header": json.loads(json.dumps(kept))} | {name: value.tobytes() for name, value in arrays.items()}


def served_state(service: Service) -> dict[str, Any]:
    """The same of a service that waits for nothing."""
    service.order(service.checkpoint).result(60)
    return state(service.served.session)
