"""One caller's connection: uvicorn's HTTP protocol with limits on what a caller may send, and how slowly.

uvicorn waits for ever for a head or a body, and lets through what `framing` refuses. What is refused is answered here,
in JSON, before the application sees it. The application reaches the connection by `connection_of(scope)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from serving.server.answers import error_body, error_headers
from serving.server.errors import BadFraming, HeadTooLarge, RequestTimeout, ServingError
from serving.server.framing import refusal
from serving.server.limits import Limits

_KEY: Final = "knodel.connection"


class Traffic:
    """What all connections of a listener share: whether it drains, and how many requests it has seen."""

    def __init__(self) -> None:
        self.draining = False
        self.requests = 0


class Connection(HttpToolsProtocol):
    """A connection with a guard."""

    def __init__(self, config: Config, state: ServerState, limits: Limits, traffic: Traffic) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self._limits = limits
        self._traffic = traffic
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True  # or before it
        self._head_size = 0
        self._body_begun = 0.0
        self._body_size = 0
        self._refused: ServingError | None = None
        self._on_gone: Callable[[], object] | None = None

    def when_gone(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the caller leaves; None takes it back."""
        self._on_gone = callback

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller that says nothing is cut off, too."""
        super().connection_made(transport)
        self._arm(self._limits.head_time)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever serves the request."""
        self._disarm()
        super().connection_lost(exc)
        callback, self._on_gone = self._on_gone, None
        if callback is not None:
            callback()

    def data_received(self, data: bytes) -> None:
        """Parse, and start or stop the clock of what is incomplete."""
        if self._refused is not None:
            return
        if self._in_head:
            self._head_size += len(data)
        super().data_received(data)
        if self._refused is not None or self.transport.is_closing():
            return
        if self._in_head and self._head_size:
            self._check_incomplete_head()
        elif not self._in_head and self._timer is None:
            self._arm(self._limits.body_grace)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Refuse the head, or begin the request; trailers, which the parser also calls headers, are left out."""
        refused = refusal(self.parser.get_http_version(), self.url, self.headers, self._limits)
        if refused is not None:
            self._refused = refused
            raise BadFraming(str(refused))  # ends the parser, which calls send_400_response
        self._disarm()
        self._in_head = False
        self._head_size = 0
        self._body_begun = self.loop.time()
        self._body_size = 0
        self._traffic.requests += 1
        self.scope[_KEY] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        self.headers = []
        if self._traffic.draining:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._disarm()
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser, or `refusal`, does not take."""
        self._refuse(self._refused or BadFraming("the request is no HTTP/1.1"))

    def _check_incomplete_head(self) -> None:
        if self._head_size > self._limits.head:
            self._refuse(HeadTooLarge(f"the headers of a request have at most {self._limits.head} bytes"))
        elif self._timer is None:
            self._arm(self._limits.head_time)

    def _refuse(self, error: ServingError) -> None:
        """Answer with the error and close; when another request is being answered, only read no more."""
        self._refused = error
        self._disarm()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            cycle.keep_alive = False  # the answers come in order: that one first, and then the end
            return
        if cycle is not None and not cycle.response_complete and cycle.response_started:
            self.transport.abort()
            return
        self.transport.write(_whole_answer(error, self.server_state.default_headers))
        self.transport.close()

    def _arm(self, delay: float) -> None:
        self._timer = self.loop.call_later(delay, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._in_head:
            self._refuse(RequestTimeout("the head of the request came too slowly"))
            return
        wanted = (self.loop.time() - self._body_begun - self._limits.body_grace) * self._limits.body_rate
        if self._body_size < max(wanted, 1) and not self.flow.read_paused:
            self._refuse(RequestTimeout("the body of the request came too slowly"))
        else:
            self._arm(self._limits.body_grace)


def connection_of(scope: Mapping[str, Any]) -> Connection:
    """The connection that this request came on. Raises TypeError under another server than ours."""
    connection = scope.get(_KEY)
    if not isinstance(connection, Connection):
        raise TypeError("the model server runs on Connection only")
    return connection


def _whole_answer(error: ServingError, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    body = error_body(str(error))
    headers = [
        *default_headers,
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *error_headers(error),
    ]
    return STATUS_LINE[error.status] + b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n" + body
