"""Write the head and the body of a response together.

uvicorn writes the head as soon as the application sends it: two system calls, two packets, and the client wakes up
twice. Here the head is kept until the body follows, which it nearly always does at once.
"""

from __future__ import annotations

from typing import Any

from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from clusters.net.server.framing import Headers


class ResponseWriter:
    """An ASGI `send` for one request, in front of uvicorn's own."""

    __slots__ = ("_cycle", "_start", "_until_close")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._start: Message | None = None
        self._until_close = False

    async def __call__(self, message: Message) -> None:
        """Keep the head of the response, and write it together with the next message."""
        start = self._start
        if start is None and message["type"] == "http.response.start":
            self._start = message
            return
        self._start = None
        cycle: Any = self._cycle  # its types of messages are narrower than Starlette's
        if start is not None and cycle.response_complete:
            return  # the connection has refused the rest of the request
        if start is None:
            await self._forward(message)
        elif message.get("more_body") or cycle.flow.write_paused or cycle.disconnected or not _is_plain(cycle, start):
            self._until_close = cycle.scope["http_version"] == "1.0" and not any(
                name == b"content-length" for name, _ in start["headers"]
            )
            if self._until_close:
                cycle.chunked_encoding = False
            await cycle.send(start)
            await self._forward(message)
        else:
            headers, body = cycle.default_headers + start["headers"], message.get("body", b"")
            cycle.transport.write(encode_response(start["status"], headers, body, cycle.keep_alive))
            cycle.response_started = cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                cycle.transport.close()
            cycle.on_response()

    async def _forward(self, message: Message) -> None:
        """Forward to uvicorn. In HTTP/1.0, without chunks, closing ends a body of unknown length (RFC 9112, 6.3)."""
        cycle: Any = self._cycle
        if self._until_close:
            cycle.expected_content_length = len(message.get("body", b""))
        await cycle.send(message)


def encode_response(status: int, headers: Headers, body: bytes, keep_alive: bool) -> bytes:
    """Return the bytes of a response; `headers` must include the Content-Length."""
    lines = [b"%s: %s\r\n" % header for header in headers]
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    return b"".join((STATUS_LINE[status], *lines, b"\r\n", body))


def _is_plain(cycle: RequestResponseCycle, start: Message) -> bool:
    """Return whether the response has a length and a body, and no Connection header of its own."""
    has_length = False
    for name, _ in start["headers"]:
        if name == b"content-length":
            has_length = True
        elif name == b"connection":
            return False
    return has_length and cycle.scope["method"] != "HEAD"
