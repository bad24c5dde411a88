"""One caller's connection: uvicorn's HTTP protocol with limits on what a caller may send, and how slowly.

uvicorn waits for ever for a head or a body, and lets through what `framing` refuses. What is refused is answered here,
in JSON, before the application sees it. The application reaches the connection by `connection_of(scope)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from serving.server.answering import Answering, whole_answer
from serving.server.answers import JSON, error_body, error_headers
from serving.server.errors import BadFraming, HeadTooLarge, RequestTimeout, ServingError, TooLarge
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
            self._arm(self._limits.body_check)

    def on_message_begin(self) -> None:
        """A head begins, perhaps behind a request in the same packet."""
        super().on_message_begin()
        self._in_head = True
        self._head_size = max(self._head_size, 1)

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
        if self._traffic.draining or self.parser.should_upgrade():  # the parser reads nothing behind an upgrade
            self.cycle.keep_alive = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Hand our own way to answer to the application that the listener has now, not when the caller connected."""
        present: Any = self.config.loaded_app

        async def answering(scope: Scope, receive: Receive, _: Send) -> None:
            await present(scope, receive, Answering(cycle))

        super()._start_asgi_task(cycle, answering)  # type: ignore[arg-type]

    def on_body(self, body: bytes) -> None:
        """A piece of the body, counted whether its length was announced or not."""
        self._body_size += len(body)
        if self._body_size > self._limits.body:
            self._refused = TooLarge(f"a request has at most {self._limits.body} bytes")
            raise BadFraming(str(self._refused))  # ends the parser, as above
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._disarm()
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser, or `refusal`, does not take."""
        self.refuse(self._refused or BadFraming("the request is no HTTP/1.1"))

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: an upgrade that a server does not know is ignored (RFC 9110, 7.8)."""

    def _check_incomplete_head(self) -> None:
        if self._head_size > self._limits.head:
            self.refuse(HeadTooLarge(f"the headers of a request have at most {self._limits.head} bytes"))
        elif self._timer is None:
            self._arm(self._limits.head_time)

    def refuse(self, error: ServingError) -> None:
        """Answer the request that is being read with `error` and end the connection."""
        self._disarm()
        self._refused = error
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            cycle.keep_alive = False  # answers come in order: first that one, and then the end
            return
        if cycle is not None and cycle.more_body:
            if cycle.response_started or self.pipeline:
                self.transport.abort()
                return
            cycle.response_started = cycle.response_complete = True
            cycle.message_event.set()  # whoever reads the body learns that nobody sends it
        if not self.transport.is_closing():
            self.transport.write(_refusal(error, self.server_state.default_headers))
            self._linger()

    def _linger(self) -> None:
        """Close for writing, and drop what still comes: closing at once would reset the answer away."""
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # TLS cannot
            self.transport.write_eof()
        self._timer = self.loop.call_later(self._limits.linger, self.transport.close)

    def _arm(self, delay: float) -> None:
        self._timer = self.loop.call_later(delay, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._in_head and not self._head_size:
            self.transport.close()
            return
        if self._in_head:
            self.refuse(RequestTimeout("the head of the request came too slowly"))
            return
        wanted = (self.loop.time() - self._body_begun - self._limits.body_check) * self._limits.body_rate
        if self._body_size < max(wanted, 1) and not self.flow.read_paused:
            self.refuse(RequestTimeout("the body of the request came too slowly"))
        else:
            self._arm(self._limits.body_check)


def connection_of(scope: Mapping[str, Any]) -> Connection:
    """The connection that this request came on. Raises TypeError under another server than ours."""
    connection = scope.get(_KEY)
    if not isinstance(connection, Connection):
        raise TypeError("the model server runs on Connection only")
    return connection


def _refusal(error: ServingError, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    body = error_body(str(error))
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body)), *error_headers(error)]
    return whole_answer(error.status, default_headers + headers, body, keep_alive=False)
