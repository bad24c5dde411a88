"""The caller's connection: uvicorn's HTTP protocol, which reads a body only as fast as the application takes it.

uvicorn reads on until 64 KiB are buffered, and hides the connection from the application. While a request waits for an
endpoint nothing asks for its body, so here reading stops after the first piece (`RECEIVE_BUFFER` at most) and the rest
stays in the kernel and, by flow control, with the caller. The application reaches the connection by `caller_of(scope)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from clusters.embedded.activator.proxy.answers import error_body
from clusters.embedded.activator.proxy.tcp import is_established, set_receive_buffer

FIRST_REQUEST = 0.5  # s; a drain waits that long for the first request of a connection that was just accepted
FLOWING_BUFFER = 128 * 1024  # bytes; the same once the body is wanted: 750 MB/s instead of 450
_STATE = "caller"


class CallerConnection(HttpToolsProtocol):
    """One caller's connection."""

    _on_gone: Callable[[], object] | None = None
    _draining = False
    _is_used = False

    def when_gone(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the connection is lost; None takes it back."""
        self._on_gone = callback

    @property
    def unread(self) -> bool:
        """Whether part of the request's body is still with the caller, so that its leaving may go unseen."""
        return self.cycle is not None and self.cycle.more_body

    @property
    def gone(self) -> bool:
        """Whether the caller left, as far as the kernel knows (it also knows while nothing is being read)."""
        return not is_established(self.transport)

    def widen(self) -> None:
        """An endpoint takes the rest of the body: let it come in larger pieces."""
        set_receive_buffer(self.transport, FLOWING_BUFFER)

    def abort(self) -> None:
        """Break off, so that the caller does not take what it has for the whole answer."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Finish what is in flight, serve the first request of a new connection, which may be on its way, and close."""
        self._draining = True
        if not self._is_used:
            self.loop.call_later(FIRST_REQUEST, self._close_unused)
        else:
            super().shutdown()

    def _close_unused(self) -> None:
        if not self._is_used:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever serves the request."""
        super().connection_lost(exc)
        callback, self._on_gone = self._on_gone, None
        if callback is not None:
            callback()

    def data_received(self, data: bytes) -> None:
        """Take what came and stop reading when it is not the end of the request: `receive()` reads on."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and cycle.more_body and not cycle.response_complete and not self.transport.is_closing():
            self.flow.pause_reading()

    def on_headers_complete(self) -> None:
        """Keep trailers, which the parser also reports as headers, out of the request's headers."""
        self.scope["state"][_STATE] = self
        super().on_headers_complete()
        self.headers = []
        self._is_used = True
        if self._draining:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """As all errors in JSON."""
        body = error_body(f"not an HTTP/1.1 request: {msg}")
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


def caller_of(scope: Mapping[str, Any]) -> CallerConnection:
    """The connection that this request came on. Raises TypeError under another server than ours."""
    caller = scope["state"].get(_STATE)
    if not isinstance(caller, CallerConnection):
        raise TypeError("the activator runs on CallerConnection only")
    return caller
