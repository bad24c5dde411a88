"""A minimal HTTP client that requests one page repeatedly over one connection.

Every request ends within its deadline and holds at most the allowed bytes, whatever the server does. After a failure,
the next request opens a new connection.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from clusters.base.errors import KnodelError

HTTP_OK = 200


class NoResponse(KnodelError):
    """Raised when there was no usable response in time. `refused`: no process listens on the port."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class BadResponse(KnodelError):
    """Raised for a response that is too long or not HTTP."""


class PersistentConnection:
    """Repeated `GET http://HOST:PORT/TARGET`, one request at a time."""

    def __init__(self, host: str, port: int, target: str, max_bytes: int) -> None:
        authority = f"{f'[{host}]' if ':' in host else host}:{port}"
        self._address = (host, port)
        self._where = f"http://{authority}{target.partition('?')[0]}"
        self._request = f"GET {target} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode("ascii")
        self._max_bytes = max_bytes
        self._connection: _Protocol | None = None

    async def get(self, timeout: float) -> bytes:
        """Return the body of a 200 response within `timeout` seconds. Raises NoResponse, BadResponse."""
        done = False
        try:
            async with asyncio.timeout(timeout):
                body = await (await self._open()).send(self._request)
            done = True
        except TimeoutError as error:
            raise NoResponse(f"{self._where} did not answer within {timeout:g} s") from error
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            raise NoResponse(f"{self._where} did not answer: {error}", refused=refused) from error
        finally:
            if not done:
                self.close()
        return body

    def close(self) -> None:
        """Close the connection; the next `get` opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    async def _open(self) -> _Protocol:
        if self._connection is None or self._connection.ended:
            self.close()
            host, port = self._address
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(
                lambda: _Protocol(self._where, self._max_bytes), host, port
            )
        return self._connection


class _Protocol(asyncio.Protocol):
    """The protocol of one connection, which ends at the first error."""

    def __init__(self, where: str, max_bytes: int) -> None:
        self.ended = False
        self._where = where
        self._max_bytes = max_bytes
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    async def send(self, request: bytes) -> bytes:
        """Send the request and return its response's body. Raises NoResponse, BadResponse."""
        if self._transport is None or self.ended:
            raise NoResponse(f"{self._where} closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._body.clear()
        self._transport.write(request)
        return await self._answer

    def abort(self) -> None:
        """Close the connection immediately."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the open transport."""
        self._transport = cast(asyncio.Transport, transport)  # a TCP connection's

    def data_received(self, data: bytes) -> None:
        """Feed the parser. Data without a pending request ends the connection."""
        if self.ended:
            return
        if self._answer is None or self._answer.done():
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(BadResponse(f"{self._where} does not speak HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending request."""
        self._fail(NoResponse(f"{self._where} closed the connection: {exc or 'before it had answered'}"))

    # --- httptools ---

    def on_body(self, body: bytes) -> None:
        """Append a part of the body, up to the limit."""
        if self.ended:
            return
        if len(self._body) + len(body) > self._max_bytes:
            self._fail(BadResponse(f"{self._where} answered more than {self._max_bytes} bytes"))
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Complete the pending request."""
        status = self._parser.get_status_code()
        if status != HTTP_OK:
            self._fail(NoResponse(f"{self._where} answered {status}"))
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(self._body))
            if not self._parser.should_keep_alive():
                self.abort()

    def _fail(self, error: KnodelError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.abort()
