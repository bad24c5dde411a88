"""How answers leave: head and body in one write.

uvicorn writes the head when it is told of it and the body later: two system calls, two packets, and the receiver wakes
up twice. Here a head waits for its body when the application sends them one after the other, as it does nearly always.
"""

from __future__ import annotations

from typing import Any

from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from serving.modelserver.base.headers import Headers


class ResponseWriter:
    """ASGI's `send` of one request, in front of uvicorn's."""

    __slots__ = ("_cycle", "_start", "_to_the_end")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._start: Message | None = None
        self._to_the_end = False

    async def __call__(self, message: Message) -> None:
        """Keep a head; write it with what follows."""
        start = self._start
        if start is None and message["type"] == "http.response.start":
            self._start = message
            return
        self._start = None
        cycle: Any = self._cycle  # its messages are typed more narrowly than Starlette's
        if start is not None and cycle.response_complete:
            return  # the connection has refused the rest of the request meanwhile
        if start is None:
            await self._pass_on(message)
        elif message.get("more_body") or cycle.flow.write_paused or cycle.disconnected or not _is_plain(cycle, start):
            self._to_the_end = cycle.scope["http_version"] == "1.0" and not _has_length(start)
            if self._to_the_end:
                cycle.chunked_encoding = False
            await cycle.send(start)
            await self._pass_on(message)
        else:
            self._write(start, message.get("body", b""))

    async def _pass_on(self, message: Message) -> None:
        """To HTTP/1.0, which knows no chunks, a body without a length ends with the connection (RFC 9112, 6.3)."""
        cycle: Any = self._cycle
        if self._to_the_end:
            cycle.expected_content_length = len(message.get("body", b""))
        await cycle.send(message)

    def _write(self, start: Message, body: bytes) -> None:
        cycle = self._cycle
        cycle.transport.write(
            encode_response(start["status"], cycle.default_headers + start["headers"], body, cycle.keep_alive)
        )
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


def encode_response(status: int, headers: Headers, body: bytes, keep_alive: bool) -> bytes:
    """An answer as it goes over the wire; its headers have the length of the body."""
    lines = [b"%s: %s\r\n" % header for header in headers]
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    return b"".join((STATUS_LINE[status], *lines, b"\r\n", body))


def _is_plain(cycle: RequestResponseCycle, start: Message) -> bool:
    """Whether nothing about the answer is special: it has a length, and it has a body."""
    has_length = False
    for name, _ in start["headers"]:
        if name == b"content-length":
            has_length = True
        elif name == b"connection":
            return False
    return has_length and cycle.scope["method"] != "HEAD"


def _has_length(start: Message) -> bool:
    return any(name == b"content-length" for name, _ in start["headers"])
