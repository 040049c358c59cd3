"""uvicorn around the application: listening, loading in the background, SIGTERM, the end."""

import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import uvicorn

from natkal.errors import StreamError
from natkal.runs.stopping import closing
from natkal.serve.guard import make_protocol
from natkal.serve.http import Access, Application
from natkal.serve.service import Service
from natkal.serve.versions import Version
from natkal.settings.serve import Limits

SHORTEST_TOKEN = 16
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 10


def make_access(host: str, token_file: Path | None, *, no_auth: bool) -> Access:
    """Who may ask; beyond this machine a token is needed, or the word that none is."""
    if token_file is not None:
        try:
            token = token_file.read_bytes().strip()
        except OSError as error:
            raise StreamError(f"--token-file: {token_file} cannot be read: {error.strerror or error}") from error
        if len(token) < SHORTEST_TOKEN:
            raise StreamError(f"--token-file: a token has at least {SHORTEST_TOKEN} characters; {token_file} has fewer")
        return Access(token=token)
    if is_loopback(host):
        return Access()
    if not no_auth:
        raise StreamError(
            f"--host {host}: others could reach the learner; give --token-file, or say --no-auth to let anyone in"
        )
    return Access(hosts=frozenset())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, or a sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(2048)
    except OSError as error:
        found.close()
        raise StreamError(f"{host}:{port}: cannot listen ({error.strerror or error}); --port names another") from error
    found.set_inheritable(True)
    return found


class _Server(uvicorn.Server):
    """A server whose signals end it with exit code 0."""

    def __init__(self, config: uvicorn.Config, app: Application):
        super().__init__(config)
        self._app = app

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the server; they are not raised again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Live pages end at once, requests are answered."""
        closing()
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Asked ten times a second whether to end."""
        ending = await super().on_tick(counter)
        if ending:
            self._app.ending.set()
        return ending


def serve(
    build: Callable[[], Service],
    listening: socket.socket,
    access: Access,
    limits: Limits,
    *,
    ready: Callable[[Service], None] = lambda service: None,
) -> Version | None:
    """Listen at once, load the run meanwhile, serve until a signal; returns the last checkpoint.

    What goes wrong with loading is raised here.
    """
    # a call computes a few rows: handing it to another thread would take longer
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    app = Application(access, limits)
    config = uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        http=make_protocol(limits.connections, limits.seconds),
        loop="uvloop",
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        proxy_headers=False,
        log_level="error",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config, app)
    failed: list[Exception] = []

    def load() -> None:
        try:
            with jax.enable_x64(True):
                service = build()
                service.start()
            app.service = service
            ready(service)
        except Exception as error:
            failed.append(error)
            server.should_exit = True

    loading = threading.Thread(target=load, name="natkal-load", daemon=True)
    loading.start()
    server.run(sockets=[listening])
    loading.join()
    if failed:
        raise failed[0]
    assert app.service is not None
    with jax.enable_x64(True):
        return app.service.close()
