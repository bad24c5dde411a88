"""The caller's connection: uvicorn's HTTP protocol with back-pressure on the request's body.

uvicorn buffers up to 64 KiB, and does not expose the connection to the application. A request that waits for an
endpoint does not need its body. So this protocol stops reading after the first piece, and the rest stays in the kernel
(`RECEIVE_BUFFER` of `process`) and, by TCP flow control, with the caller. The application gets the connection from
`caller_of(scope)`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from clusters.embedded.activator.proxy.errors import error_body
from clusters.net.sockets import is_established

FIRST_REQUEST = 0.5  # s; a drain waits this long for the first request of a connection that was just accepted
STREAMING_BUFFER = 128 * 1024  # bytes; SO_RCVBUF once the body is being read: 750 MB/s instead of 450
_STATE = "caller"


class CallerConnection(HttpToolsProtocol):
    """One caller's connection."""

    _disconnect_callback: Callable[[], object] | None = None
    _draining = False
    _is_used = False

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the connection is lost; None removes it."""
        self._disconnect_callback = callback

    @property
    def unread(self) -> bool:
        """Whether part of the request's body has not been read, so that the event loop may not report a disconnect."""
        return self.cycle is not None and self.cycle.more_body

    @property
    def is_disconnected(self) -> bool:
        """Whether the caller disconnected. The kernel knows it even while nothing is being read."""
        return not is_established(self.transport)

    def enlarge_buffer(self) -> None:
        """Receive the rest of the body in larger pieces, because an endpoint reads it."""
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STREAMING_BUFFER)

    def abort(self) -> None:
        """Abort the connection, so that the caller does not take a partial response for a complete one."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Finish the active request and close the connection.

        A new connection may have a request on its way, so it gets `FIRST_REQUEST` to send it.
        """
        self._draining = True
        if not self._is_used:
            self.loop.call_later(FIRST_REQUEST, self._close_unused)
        else:
            super().shutdown()

    def _close_unused(self) -> None:
        if not self._is_used:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Call the callback of `on_disconnect`."""
        super().connection_lost(exc)
        callback, self._disconnect_callback = self._disconnect_callback, None
        if callback is not None:
            callback()

    def data_received(self, data: bytes) -> None:
        """Process the data, and stop reading until `receive()` if the request is incomplete."""
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
        """Respond with JSON, like all errors."""
        body = error_body(f"not an HTTP/1.1 request: {msg}")
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


def caller_of(scope: Mapping[str, Any]) -> CallerConnection:
    """Return the connection of this request. Raises TypeError under another server than ours."""
    caller = scope["state"].get(_STATE)
    if not isinstance(caller, CallerConnection):
        raise TypeError("the activator runs on CallerConnection only")
    return caller
