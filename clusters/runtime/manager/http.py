"""A small HTTP server for probes, metrics and refusals: reads a request's head only, answers, closes.

One request for each connection, heads within a time and a size, bodies never kept: it needs no framework, and nothing
that a caller sends can fill the memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from clusters.base.errors import KnodelError

log = logging.getLogger(__name__)

HEAD_TIMEOUT = 10.0  # s for the whole head
MOST_HEAD_BYTES = 32 * 1024
MOST_CONNECTIONS = 256  # at once; more are dropped: one that waited would be held without a time limit
LINGER = 1.0  # s that a body is read and dropped after the answer, so that its sender reads the answer and no reset
LINGER_CHUNK = 64 * 1024  # bytes


class CannotListen(KnodelError):
    """The address is taken, or not this machine's."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request's first line; `path` is without the query."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    status: HTTPStatus
    body: str = ""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Response]


class HttpListener:
    """Answers at one address until closed."""

    def __init__(self, host: str, port: int, handler: Handler) -> None:
        self._host = host
        self._port = port
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen; returns the port. Raises CannotListen."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=MOST_HEAD_BYTES)
        except OSError as error:
            address = f"{self._host}:{self._port}"
            raise CannotListen(f"cannot listen on {address}: {error.strerror or error}: choose another port") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and drop what is open."""
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
            log.debug("a caller went away")
        except asyncio.CancelledError:
            log.debug("a caller was dropped by the end")  # by `close`; the server's streams report it as an error
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            response, request = Response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), None
        else:
            request = parse_head(head)
            response = self._handled(request) if request is not None else Response(HTTPStatus.BAD_REQUEST)
        writer.write(_encode(response, with_body=request is None or request.method != "HEAD"))
        await writer.drain()
        writer.write_eof()
        await _drop_rest(reader)

    def _handled(self, request: Request) -> Response:
        try:
            return self._handler(request)
        except Exception:  # a fault of ours; the caller gets an answer, and the next one too
            log.exception("%s %s failed", request.method, request.path)
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR)


def parse_head(head: bytes) -> Request | None:
    """The request of a head (RFC 9112 §3); None when its first line is none."""
    try:
        line = head.split(b"\r\n", 1)[0].decode("ascii")
    except UnicodeDecodeError:
        return None
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return None
    return Request(words[0], words[1].partition("?")[0])


def _encode(response: Response, with_body: bool) -> bytes:
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


async def _drop_rest(reader: asyncio.StreamReader) -> None:
    """Read a moment on: a close with unread bytes is a reset, which may overtake the answer."""
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(LINGER):
            while await reader.read(LINGER_CHUNK):
                pass
