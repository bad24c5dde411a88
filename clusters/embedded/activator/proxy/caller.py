"""The caller's connection, with back-pressure on the request's body.

uvicorn buffers up to 64 KiB. A request that waits for an endpoint does not need its body. So this connection stops
reading after the first piece, and the rest stays in the kernel (`RECEIVE_BUFFER` of `process`) and, by TCP flow
control, with the caller.
"""

from __future__ import annotations

import socket

from clusters.net.server.errors import error_body
from clusters.net.server.protocol import ServerConnection
from clusters.net.sockets import is_established

FIRST_REQUEST = 0.5  # s; a drain waits this long for the first request of a connection that was just accepted
STREAMING_BUFFER = 128 * 1024  # bytes; SO_RCVBUF once the body is being read: 750 MB/s instead of 450


class CallerConnection(ServerConnection):
    """One caller's connection."""

    _draining = False
    _is_used = False

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

    def data_received(self, data: bytes) -> None:
        """Process the data, and stop reading until `receive()` if the request is incomplete."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and cycle.more_body and not cycle.response_complete and not self.transport.is_closing():
            self.flow.pause_reading()

    def on_headers_complete(self) -> None:
        """Start the request. During a drain it is the last one on its connection."""
        super().on_headers_complete()
        self._is_used = True
        if self._draining:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Respond with JSON, like all errors."""
        body = error_body(f"not an HTTP/1.1 request: {msg}")
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()
