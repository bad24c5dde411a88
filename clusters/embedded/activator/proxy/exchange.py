"""Send one request to one endpoint: stream its body there and the response back, both at once.

Nothing is buffered beyond one piece and the buffers of the sockets: each side is read only as fast as the other
accepts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from clusters.base.errors import KnodelError
from clusters.embedded.activator.proxy.headers import has_body, is_chunked, request_head, response_headers
from clusters.net.upstream import NO_BODY, Headers, UpstreamConnection

Scope = Mapping[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MoreHeaders = Callable[[], Awaitable[Headers]]
"""Called when the endpoint's response begins; returns headers to add to it."""

LAST_CHUNK = b"0\r\n\r\n"


class CallerDisconnected(KnodelError):
    """The caller closed its connection before the response was complete."""


class Exchange:
    """An ASGI request that is forwarded. `responded`: a response has begun."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._chunked = is_chunked(scope["headers"])
        self._first = b""
        self._more = has_body(scope["headers"])
        self._begun = False
        self.responded = False

    async def begin(self) -> None:
        """Read the first piece of the body, once, so that no upstream connection waits for it.

        Raises CallerDisconnected.
        """
        if not self._begun:
            self._begun = True
            self._first = await self._next() if self._more else b""

    async def run(self, connection: UpstreamConnection, token: bytes, more_headers: MoreHeaders) -> None:
        """Send the request with the endpoint's `token`, and stream the response to the caller.

        Raises UpstreamError. `responded` is true if the response had begun.
        """
        connection.send(request_head(self._scope, token) + self._first, head_only=self._scope["method"] == "HEAD")
        sending = asyncio.create_task(self._send_body(connection)) if self._more else None
        try:
            status, headers = await connection.response()
            await self._stream_response(connection, status, response_headers(headers) + await more_headers())
        finally:
            if sending is not None:
                await self._stop(sending, connection)

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a complete response of the activator."""
        self.responded = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _stream_response(self, connection: UpstreamConnection, status: int, headers: Headers) -> None:
        if status in NO_BODY:
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        self.responded = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        while True:
            data = await connection.read()
            last = not data or connection.drained
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            if last:
                return

    async def _send_body(self, connection: UpstreamConnection) -> None:
        while self._more:
            connection.write(await self._next())
            await connection.drain()

    async def _next(self) -> bytes:
        """Return the next piece of the request's body, with chunk framing if the body is chunked."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise CallerDisconnected
        data: bytes = message["body"]
        self._more = message["more_body"]
        if self._chunked:
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"" if self._more else LAST_CHUNK)
        return data

    async def _stop(self, sending: asyncio.Task[None], connection: UpstreamConnection) -> None:
        """Stop sending the body, and close the connection if the body is incomplete: a response may precede its end."""
        if not sending.done():
            sending.cancel()
            connection.close()
        await asyncio.wait({sending})
        if not sending.cancelled() and isinstance(sending.exception(), CallerDisconnected):
            connection.close()
