"""A small HTTP server for probes and metrics: it reads the head of a request, responds and closes.

It serves one request per connection, bounds the time and size of heads, and never stores bodies. So it needs no
framework, and clients cannot exhaust its memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from clusters.base.errors import AddressInUse

log = logging.getLogger(__name__)

HEAD_TIMEOUT = 10.0  # s for the whole head
MOST_HEAD_BYTES = 32 * 1024
MOST_CONNECTIONS = 256  # at once; further ones are closed, since a waiting one would have no time limit
LINGER = 1.0  # s to discard the body after the response, so that the client reads the response instead of a reset
LINGER_CHUNK = 64 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The request line, and the header `Accept`; `path` is without the query."""

    method: str
    path: str
    accept: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response."""

    status: HTTPStatus
    body: str = ""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[HttpRequest], HttpResponse]


class HttpListener:
    """An HTTP server at one address until `close`."""

    def __init__(self, host: str, port: int, handler: Handler) -> None:
        self._host = host
        self._port = port
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen and return the port. Raises AddressInUse."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=MOST_HEAD_BYTES)
        except OSError as error:
            address = f"{self._host}:{self._port}"
            problem = f"cannot listen on {address}: {error.strerror or error}"
            raise AddressInUse(problem, "choose another port") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and drop the open connections."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            if len(self._open) <= MOST_CONNECTIONS:
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            log.debug("a client disconnected")
        except asyncio.CancelledError:
            log.debug("a client was dropped at shutdown")  # by `close`; asyncio streams would report it as an error
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            response, request = HttpResponse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), None
        else:
            request = parse_head(head)
            response = self._call_handler(request) if request is not None else HttpResponse(HTTPStatus.BAD_REQUEST)
        writer.write(_encode(response, with_body=request is None or request.method != "HEAD"))
        await writer.drain()
        writer.write_eof()
        await _discard_rest(reader)

    def _call_handler(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._handler(request)
        except Exception:  # an internal error must not end the server
            log.exception("%s %s failed", request.method, request.path)
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR)


def parse_head(head: bytes) -> HttpRequest | None:
    """Return the request of a head (RFC 9112 §3); None for an invalid request line."""
    first, *fields = head.split(b"\r\n")
    try:
        words = first.decode("ascii").split(" ")
    except UnicodeDecodeError:
        return None
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return None
    accepted = (value for name, _, value in (field.partition(b":") for field in fields) if name.lower() == b"accept")
    return HttpRequest(words[0], words[1].partition("?")[0], b",".join(accepted).decode("latin-1").strip())


def _encode(response: HttpResponse, with_body: bool) -> bytes:
    body = response.body.encode()
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(body)),
        "Connection": "close",
        "X-Content-Type-Options": "nosniff",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status.value} {response.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (body if with_body else b"")


async def _discard_rest(reader: asyncio.StreamReader) -> None:
    """Discard further input for a moment: closing with unread bytes sends a reset, which may overtake the response."""
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(LINGER):
            while await reader.read(LINGER_CHUNK):
                pass
