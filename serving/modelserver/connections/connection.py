"""One caller's connection: uvicorn's HTTP protocol with limits on what a caller may send, and how slowly.

uvicorn waits for ever for a head or a body, and lets through what `framing` refuses. What is refused is answered here,
in JSON, before the application sees it. The application reaches the connection by `connection_of(scope)`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from clusters.base.sizes import format_size
from serving.modelserver.base.errors import BadFraming, HeadTooLarge, Overloaded, RequestTimeout, ServingError, TooLarge
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.responses import JSON, error_body, error_headers, send_error
from serving.modelserver.base.split import RECEIVED_KEY
from serving.modelserver.connections.body_rate import BodyRate
from serving.modelserver.connections.framing import find_head_error
from serving.modelserver.connections.outbox import GatheringTransport, Outbox
from serving.modelserver.connections.response_writer import ResponseWriter, encode_response
from serving.modelserver.connections.write_backpressure import ListenerState, WriteBackpressure, reset_connection

log = logging.getLogger(__name__)

FAILED: Final = "the server failed: its log has the details"
REFUSED_KEY: Final = "knodel.refused"
"""Of the scope: the status of a request that was answered here, while the application read its body."""
BROKEN_KEY: Final = "knodel.broken"
"""Of the scope: the status of what went wrong after the answer's own status had left."""
_KEY: Final = "knodel.connection"


class HttpConnection(HttpToolsProtocol):
    """A connection with a guard."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: ServerLimits,
        traffic: ListenerState,
        outbox: Outbox | None = None,
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self._limits = limits
        self._traffic = traffic
        self._outbox = outbox
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True  # or before it
        self._head_size = 0
        self._body_size = 0
        self._pace = BodyRate(limits)
        self.answering: RequestResponseCycle | None = None  # what the application was given last
        self._untaken: WriteBackpressure | None = None
        self._refused: ServingError | None = None
        self._lost = False
        self._on_gone: Callable[[], object] | None = None

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the caller leaves, at once if it has left; None takes it back."""
        if callback is not None and self._lost:
            callback()
        else:
            self._on_gone = callback

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller that says nothing is cut off, too."""
        if self._outbox is not None:
            gathering: Any = GatheringTransport(transport, self._outbox)
            transport = gathering
        super().connection_made(transport)
        self._untaken = WriteBackpressure(transport, self._limits, self._traffic)
        transport.set_write_buffer_limits(high=1, low=0)  # writing is paused while anything is left to write
        self._arm(self._limits.head_time)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever serves the request."""
        self._lost = True
        self._disarm()
        if isinstance(self.transport, GatheringTransport):
            self.transport.lost()
        super().connection_lost(exc)
        if self.answering is not None and not self.answering.response_complete:
            self.answering.disconnected = True  # uvicorn tells the last request of a pipeline only
        elif self.scope is not None:  # nobody asks for it any more: without this, bodies wait for the garbage collector
            self.scope.pop(_KEY, None)  # type: ignore[typeddict-item]
        if self._untaken is not None:
            self._untaken.end()
        if self._traffic.all_gone is not None and not self.connections:
            self._traffic.all_gone.set()
        callback, self._on_gone = self._on_gone, None
        if callback is not None:
            callback()

    def pause_writing(self) -> None:
        """Something of an answer is left: from now on the caller is to take it."""
        super().pause_writing()
        if self._untaken is not None:
            self._untaken.begin()

    def resume_writing(self) -> None:
        """All was taken."""
        super().resume_writing()
        if self._untaken is not None:
            self._untaken.end()

    def shutdown(self) -> None:
        """Give the answer that is being made, none to what is behind it, and end; who does not take it is cut off."""
        cycle = self.answering or self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.close()
        else:
            cycle.keep_alive = False
        self.loop.call_later(self._limits.end, self._give_up)

    def _give_up(self) -> None:
        if self.flow.write_paused:
            self.cut_off()
        elif not self._lost:
            self.loop.call_later(self._limits.end, self._give_up)

    def reset_connection(self) -> None:
        """End the connection, whatever is left to write."""
        if not self._lost:
            reset_connection(self.transport)

    def eof_received(self) -> None:
        """The caller writes nothing more: the transport closes, behind what is kept for it."""
        if isinstance(self.transport, GatheringTransport):
            self.transport.flush()
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Parse, and start or stop the clock of what is incomplete."""
        if self._refused is not None:
            return
        self._head_size += len(data)
        before = self._body_size
        super().data_received(data)
        if self._refused is not None or self.transport.is_closing():
            return
        if not self._in_head:
            self._check_incomplete_body(before)
        elif self._head_size:
            self._check_incomplete_head()
        elif self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            self._await_another()

    def _await_another(self) -> None:
        """As uvicorn does, unless the rest of a body comes behind the answer and ends its waiting."""
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def on_message_begin(self) -> None:
        """A head begins, perhaps behind a request in the same packet."""
        super().on_message_begin()
        self._in_head = True
        self._head_size = max(self._head_size, 1)

    def on_headers_complete(self) -> None:
        """Refuse the head, or begin the request; trailers, which the parser also calls headers, are left out."""
        refused = find_head_error(self.parser.get_http_version(), self.url, self.headers, self._limits)
        if self._traffic.untaken > self._limits.answers and self.parser.get_method() == b"POST":
            refused = refused or Overloaded("callers do not take their answers: try again")
        if refused is not None:
            self._refused = refused
            raise BadFraming(str(refused))  # ends the parser, which calls send_400_response
        self._disarm()
        self._in_head = False
        self._head_size = 0
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
        self.answering = cycle

        async def answering(scope: Scope, receive: Receive, _: Send) -> None:
            send = ResponseWriter(cycle)
            try:
                await present(scope, receive, send)
            except Exception:
                if cycle.response_started or cycle.disconnected:
                    raise
                log.exception("a request failed")
                cycle.keep_alive = False
                await send_error(send, ServingError(FAILED))

        super()._start_asgi_task(cycle, answering)  # type: ignore[arg-type]

    def on_body(self, body: bytes) -> None:
        """A piece of the body, counted whether its length was announced or not."""
        self._body_size += len(body)
        if self._body_size > self._limits.body:
            self._refused = TooLarge(f"a request has at most {format_size(self._limits.body)}")
            raise BadFraming(str(self._refused))  # ends the parser, as above
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._disarm()
        self.scope[RECEIVED_KEY] = self.loop.time()  # type: ignore[typeddict-unknown-key]
        self._in_head = True
        self._head_size = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser, or `find_head_error`, does not take."""
        self.refuse(self._refused or BadFraming("the request is no HTTP/1.1"))

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: an upgrade that a server does not know is ignored (RFC 9110, 7.8)."""

    def _check_incomplete_head(self) -> None:
        if self._head_size > self._limits.head:
            self.refuse(HeadTooLarge(f"the headers of a request have at most {format_size(self._limits.head)}"))
        elif self._timer is None:
            self._arm(self._limits.head_time)

    def _check_incomplete_body(self, before: int) -> None:
        """What is no head is the body, or surrounds it: extensions of chunks, and trailers, which may have no end."""
        if self._body_size != before:
            self._head_size = 0
        elif self._head_size > self._limits.head:
            self.refuse(HeadTooLarge(f"the trailers of a request have at most {format_size(self._limits.head)}"))
            return
        if self._timer is None:
            self._pace = BodyRate(self._limits)
            self._arm(self._limits.body_check)

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
            cycle.waiting_for_100_continue = False  # else whoever reads the body would write it behind the end
            cycle.scope[REFUSED_KEY] = error.status  # type: ignore[typeddict-unknown-key]
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
        if self.flow.read_paused:  # it waits behind another request, or for the application
            self._pace.rest(self._body_size)
        elif not self._pace.is_enough(self._body_size):
            self.refuse(RequestTimeout("the body of the request came too slowly"))
            return
        self._arm(self._limits.body_check)


def connection_of(scope: Mapping[str, Any]) -> HttpConnection:
    """The connection that this request came on. Raises TypeError under another server than ours."""
    connection = scope.get(_KEY)
    if not isinstance(connection, HttpConnection):
        raise TypeError("the model server runs on Connection only")
    return connection


def _refusal(error: ServingError, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    body = error_body(str(error))
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body)), *error_headers(error)]
    return encode_response(error.status, default_headers + headers, body, keep_alive=False)
