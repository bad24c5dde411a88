"""One request passed on to one endpoint: its body streamed there, the answer streamed back, both at once.

Nothing is buffered beyond one piece and the sockets' buffers: each side is read only as fast as the other takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from clusters.base.errors import KnodelError
from clusters.embedded.activator.proxy.headers import has_body, is_chunked, request_head, response_headers
from clusters.embedded.activator.proxy.upstream import NO_BODY, Headers, UpstreamConnection

Scope = Mapping[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MoreHeaders = Callable[[], Awaitable[Headers]]
"""Asked when the endpoint's answer begins, for the headers to add to it."""

LAST_CHUNK = b"0\r\n\r\n"


class CallerLeft(KnodelError):
    """The caller closed its connection before the answer."""


class Exchange:
    """An ASGI request on its way."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._chunked = is_chunked(scope["headers"])
        self._first = b""
        self._more = has_body(scope["headers"])
        self._begun = False
        self.answered = False

    async def begin(self) -> None:
        """Take the first piece of the body, once, so that a connection is not kept waiting. Raises CallerLeft."""
        if not self._begun:
            self._begun = True
            self._first = await self._next() if self._more else b""

    async def run(self, connection: UpstreamConnection, token: bytes, more_headers: MoreHeaders) -> None:
        """Pass the request on with the endpoint's `token`, and its answer back.

        Raises UpstreamError; `answered` is true if an answer had begun.
        """
        connection.send(request_head(self._scope, token) + self._first, head_only=self._scope["method"] == "HEAD")
        pump = asyncio.create_task(self._pump(connection)) if self._more else None
        try:
            status, headers = await connection.response()
            await self._answer(connection, status, response_headers(headers) + await more_headers())
        finally:
            if pump is not None:
                await self._stop(pump, connection)

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer from here."""
        self.answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _answer(self, connection: UpstreamConnection, status: int, headers: Headers) -> None:
        if status in NO_BODY:
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        self.answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        while True:
            data = await connection.read()
            last = not data or connection.drained
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            if last:
                return

    async def _pump(self, connection: UpstreamConnection) -> None:
        while self._more:
            connection.write(await self._next())
            await connection.drain()

    async def _next(self) -> bytes:
        """The next piece of the request's body, framed."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise CallerLeft
        data: bytes = message["body"]
        self._more = message["more_body"]
        if self._chunked:
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"" if self._more else LAST_CHUNK)
        return data

    async def _stop(self, pump: asyncio.Task[None], connection: UpstreamConnection) -> None:
        """An answer may come before the request is complete; the rest of the request is then not wanted."""
        if not pump.done():
            pump.cancel()
            connection.close()
        await asyncio.wait({pump})
        if not pump.cancelled() and isinstance(pump.exception(), CallerLeft):
            connection.close()
