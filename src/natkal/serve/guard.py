"""Connections: how many there may be, how long a request may take to arrive, and how large its header may be."""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_BYTES = 64 << 10


def make_protocol(most: int, seconds: float) -> type[HttpToolsProtocol]:
    """uvicorn's protocol with limits: 429 beyond `most` connections, 408 for a request that takes too long."""

    class Guarded(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None
        _header_bytes: int | None = 0
        """Bytes of the header that is arriving; None while none is."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                self._refuse(429, "Too Many Requests", f"{most:,} connections are open; try again later")
            else:
                self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self._header_bytes is not None:
                self._header_bytes += min(len(data), HEADER_BYTES)
            super().data_received(data)
            if self._header_bytes is not None and self._header_bytes > HEADER_BYTES:
                self._refuse(431, "Request Header Fields Too Large", f"the header has more than {HEADER_BYTES:,} bytes")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._timer is None:
                self._watch()

        def on_headers_complete(self) -> None:
            self._header_bytes = None
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._stop()
            super().on_message_complete()

        def _watch(self) -> None:
            self._header_bytes = 0
            self._timer = self.loop.call_later(seconds, self._too_slow)

        def _stop(self) -> None:
            self._header_bytes = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_slow(self) -> None:
            self._refuse(408, "Request Timeout", f"the request did not arrive within {seconds:g} s")

        def _refuse(self, status: int, words: str, reason: str) -> None:
            self._stop()
            if self.transport.is_closing():
                return
            body = json.dumps({"error": reason}).encode()
            head = f"HTTP/1.1 {status} {words}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            again = "retry-after: 1\r\n" if status == 429 else ""
            self.transport.write(f"{head}{again}connection: close\r\n\r\n".encode() + body)
            self.transport.close()

    return Guarded
