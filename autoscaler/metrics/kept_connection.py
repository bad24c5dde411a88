"""One page of one server, asked for again and again over one connection: the cheapest HTTP client that is still safe.

Whatever the other end does (hangs, drips, pours, says nonsense, goes away), a poll ends within its deadline and holds
no more bytes than allowed; after a failure the next poll opens a new connection.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from clusters.base.errors import KnodelError

HTTP_OK = 200


class NoAnswer(KnodelError):
    """There was no answer in time, or none that could be used. `refused`: nobody listens there."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class BadAnswer(KnodelError):
    """There was an answer that is not believed: too long, or no HTTP."""


class KeptConnection:
    """`GET http://HOST:PORT/TARGET`, one at a time."""

    def __init__(self, host: str, port: int, target: str, max_bytes: int) -> None:
        authority = f"{f'[{host}]' if ':' in host else host}:{port}"
        self._address = (host, port)
        self._where = f"http://{authority}{target.partition('?')[0]}"
        self._request = f"GET {target} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode("ascii")
        self._max_bytes = max_bytes
        self._wire: _Wire | None = None

    async def get(self, timeout: float) -> bytes:
        """The body of a 200 within `timeout` seconds. Raises NoAnswer, BadAnswer."""
        done = False
        try:
            async with asyncio.timeout(timeout):
                body = await (await self._open()).ask(self._request)
            done = True
        except TimeoutError as error:
            raise NoAnswer(f"{self._where} did not answer within {timeout:g} s") from error
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            raise NoAnswer(f"{self._where} did not answer: {error}", refused=refused) from error
        finally:
            if not done:
                self.close()
        return body

    def close(self) -> None:
        """Let go of the connection; the next `get` opens another one."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.abort()

    async def _open(self) -> _Wire:
        if self._wire is None or self._wire.ended:
            self.close()
            host, port = self._address
            loop = asyncio.get_running_loop()
            _, self._wire = await loop.create_connection(lambda: _Wire(self._where, self._max_bytes), host, port)
        return self._wire


class _Wire(asyncio.Protocol):
    """One connection, until the first thing goes wrong."""

    def __init__(self, where: str, max_bytes: int) -> None:
        self.ended = False
        self._where = where
        self._max_bytes = max_bytes
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    async def ask(self, request: bytes) -> bytes:
        """Send the request; its answer. Raises NoAnswer, BadAnswer."""
        if self._transport is None or self.ended:
            raise NoAnswer(f"{self._where} closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._body.clear()
        self._transport.write(request)
        return await self._answer

    def abort(self) -> None:
        """Close it without a word."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)  # a TCP connection's

    def data_received(self, data: bytes) -> None:
        """Some bytes; those that nobody waits for make the connection unfit."""
        if self.ended:
            return
        if self._answer is None or self._answer.done():
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(BadAnswer(f"{self._where} does not speak HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by either end."""
        self._fail(NoAnswer(f"{self._where} closed the connection: {exc or 'before it had answered'}"))

    # --- httptools ---

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self.ended:
            return
        if len(self._body) + len(body) > self._max_bytes:
            self._fail(BadAnswer(f"{self._where} answered more than {self._max_bytes} bytes"))
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """The answer is whole."""
        status = self._parser.get_status_code()
        if status != HTTP_OK:
            self._fail(NoAnswer(f"{self._where} answered {status}"))
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(self._body))
            if not self._parser.should_keep_alive():
                self.abort()

    def _fail(self, error: KnodelError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.abort()
