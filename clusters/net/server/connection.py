"""The HTTP connection of a client, with limits on sizes, rates and framing.

uvicorn waits without a limit for a head or a body, and accepts heads that `framing` refuses. This class answers such
requests with a JSON error before the application sees them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from clusters.base.sizes import format_size
from clusters.net.server.errors import (
    RECEIVED_KEY,
    REFUSED_KEY,
    BadFraming,
    HeadTooLarge,
    HttpError,
    RequestTooLarge,
    RequestTooSlow,
    ResponsesUnread,
    error_body,
)
from clusters.net.server.framing import find_head_error
from clusters.net.server.limits import BodyRate, ConnectionLimits
from clusters.net.server.outbox import GatheringTransport, Outbox
from clusters.net.server.protocol import ServerConnection
from clusters.net.server.response_writer import ResponseWriter, encode_response
from clusters.net.server.server import HttpServer
from clusters.net.server.write_backpressure import ListenerState, WriteBackpressure, reset_connection

log = logging.getLogger(__name__)

INTERNAL_ERROR: Final = "internal error: see the log of the server"


class HttpConnection(ServerConnection):
    """A connection that enforces `ConnectionLimits`.

    `listener` is the state that it shares with other connections. With `join_head` the head of a response is sent
    together with the first piece of its body, and an unexpected error is sent as JSON.
    """

    def __init__(
        self,
        server: HttpServer,
        limits: ConnectionLimits,
        listener: ListenerState,
        outbox: Outbox | None = None,
        *,
        join_head: bool = True,
    ) -> None:
        super().__init__(server)
        self._limits = limits
        self._listener = listener
        self._outbox = outbox
        self._join_head = join_head
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True  # in a head, or before one
        self._head_size = 0
        self._body_size = 0
        self._body_rate = BodyRate(limits)
        self.current_cycle: RequestResponseCycle | None = None  # the last request that the application received
        self._backpressure: WriteBackpressure | None = None
        self._refused: HttpError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first head, so that a silent client is disconnected, too."""
        if self._outbox is not None:
            gathering: Any = GatheringTransport(transport, self._outbox)
            transport = gathering
        super().connection_made(transport)
        self._backpressure = WriteBackpressure(transport, self._limits, self._listener)
        transport.set_write_buffer_limits(high=1, low=0)  # pause writing while any data is pending
        self._arm(self._limits.head_time)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release resources and notify the application."""
        self._disarm()
        if isinstance(self.transport, GatheringTransport):
            self.transport.discard()
        if self.current_cycle is not None and not self.current_cycle.response_complete:
            self.current_cycle.disconnected = True  # uvicorn marks only the last request of a pipeline
        else:
            self.forget_scope()
        if self._backpressure is not None:
            self._backpressure.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Watch how fast the client reads the pending data."""
        super().pause_writing()
        if self._backpressure is not None:
            self._backpressure.start()

    def resume_writing(self) -> None:
        """Stop watching: all data was written."""
        super().resume_writing()
        if self._backpressure is not None:
            self._backpressure.stop()

    def shutdown(self) -> None:
        """Finish the current response and close, without serving pipelined requests. Resets slow readers."""
        cycle = self.current_cycle or self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.close()
        else:
            cycle.keep_alive = False
        self.loop.call_later(self._limits.end, self._end_shutdown)

    def _end_shutdown(self) -> None:
        if self.flow.write_paused:
            self.reset()
        elif not self._lost:
            self.loop.call_later(self._limits.end, self._end_shutdown)

    def reset(self) -> None:
        """Close the connection with a reset, and drop pending data."""
        if not self._lost:
            reset_connection(self.transport)

    def eof_received(self) -> None:
        """Write the delayed data before the transport closes, because the client has stopped sending."""
        if isinstance(self.transport, GatheringTransport):
            self.transport.flush()
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Parse the data, and start the timeout of an incomplete head or body."""
        if self._refused is not None:
            return
        self._head_size += len(data)
        before = self._body_size
        super().data_received(data)
        if self._refused is not None or self.transport.is_closing():
            return
        if not self._in_head:
            self._check_incomplete_body(before)
        elif self._head_size > self._limits.head:
            self.refuse(
                HeadTooLarge(f"the headers are too large: at most {format_size(self._limits.head)} are allowed")
            )
        elif self._head_size:
            if self._timer is None:
                self._arm(self._limits.head_time)
        elif self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # uvicorn starts this timeout after a response, but data of the rest of a body cancels it
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        """Start a head, possibly after another request in the same packet."""
        super().on_message_begin()
        self._in_head = True
        self._head_size = max(self._head_size, 1)

    def on_headers_complete(self) -> None:
        """Refuse the head or start the request."""
        error = find_head_error(self.parser.get_http_version(), self.url, self.headers, self._limits)
        if self._listener.unread > self._limits.unread_responses and self.parser.get_method() == b"POST":
            error = error or ResponsesUnread("too much response data is unread: try again")
        if error is not None:
            self._refused = error
            raise BadFraming(str(error))  # stops the parser, which calls send_400_response
        self._disarm()
        self._in_head = False
        self._head_size = 0
        self._body_size = 0
        self._listener.requests += 1
        super().on_headers_complete()
        if self._listener.draining or self.parser.should_upgrade():  # the parser stops after an upgrade
            self.cycle.keep_alive = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Serve the request by the current application of the server, with our own `send` if heads are joined."""
        current: Any = self.config.loaded_app
        if not self._join_head:
            super()._start_asgi_task(cycle, current)
            return
        self.current_cycle = cycle

        async def serve(scope: Scope, receive: Receive, _: Send) -> None:
            send = ResponseWriter(cycle)
            try:
                await current(scope, receive, send)
            except Exception:
                if cycle.response_started or cycle.disconnected:
                    raise
                log.exception("unhandled error in a request")
                cycle.keep_alive = False
                body = error_body(INTERNAL_ERROR)
                await send({"type": "http.response.start", "status": HttpError.status, "headers": _json_headers(body)})
                await send({"type": "http.response.body", "body": body})

        super()._start_asgi_task(cycle, serve)  # type: ignore[arg-type]

    def write_now(self, data: bytes) -> bool:
        """Write a piece of a chunked response; return False, and write nothing, if it has to wait for ASGI's `send`.

        It has to wait before the first piece of the response, and while the client does not read. Middleware does not
        get the piece.
        """
        cycle = self.current_cycle
        if cycle is None or not cycle.response_started or not cycle.chunked_encoding or self.flow.write_paused:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def on_body(self, body: bytes) -> None:
        """Count a piece of the body, which may have no announced length, and refuse a body that is too large."""
        self._body_size += len(body)
        if self._body_size > self._limits.body:
            self._refused = RequestTooLarge(
                f"the request is too large: at most {format_size(self._limits.body)} are allowed"
            )
            raise BadFraming(str(self._refused))  # stops the parser, as above
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that the request is complete."""
        self._disarm()
        self.scope[RECEIVED_KEY] = self.loop.time()  # type: ignore[typeddict-unknown-key]
        self._in_head = True
        self._head_size = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Send the error of a request that the parser or `find_head_error` refused."""
        self.refuse(self._refused or BadFraming("the request is not valid HTTP/1.1"))

    def _unsupported_upgrade_warning(self) -> None:
        """Do nothing: unknown upgrades are ignored (RFC 9110, 7.8)."""

    def _check_incomplete_body(self, before: int) -> None:
        """Bound the bytes around the body (extensions of chunks, and trailers), and start its timeout."""
        if self._body_size != before:
            self._head_size = 0
        elif self._head_size > self._limits.head:
            self.refuse(
                HeadTooLarge(f"the trailers are too large: at most {format_size(self._limits.head)} are allowed")
            )
            return
        if self._timer is None:
            self._body_rate = BodyRate(self._limits)
            self._arm(self._limits.body_check)

    def refuse(self, error: HttpError) -> None:
        """Respond with `error` to the request that is being read, and close the connection."""
        self._disarm()
        self._refused = error
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            cycle.keep_alive = False  # finish its response first, then close
            return
        if cycle is not None and cycle.more_body:
            if cycle.response_started or self.pipeline:
                self.transport.abort()
                return
            cycle.response_started = cycle.response_complete = True
            cycle.waiting_for_100_continue = False  # or the reader of the body would write it after the response
            cycle.scope[REFUSED_KEY] = error.status  # type: ignore[typeddict-unknown-key]
            cycle.message_event.set()  # wakes the reader of the body
        if not self.transport.is_closing():
            body = error_body(str(error))
            headers = [*self.server_state.default_headers, *_json_headers(body), *error.headers]
            self.transport.write(encode_response(error.status, headers, body, keep_alive=False))
            self._linger()

    def _linger(self) -> None:
        """Close for writing, and discard input for a while: closing with unread input would send a reset."""
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # not possible with TLS
            self.transport.write_eof()
        self._timer = self.loop.call_later(self._limits.linger, self.transport.close)

    def _arm(self, delay: float) -> None:
        self._timer = self.loop.call_later(delay, self._on_timeout)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        if self._in_head and not self._head_size:
            self.transport.close()
            return
        if self._in_head:
            self.refuse(RequestTooSlow("the head of the request arrived too slowly"))
            return
        if self.flow.read_paused:  # waiting for another request or the application
            self._body_rate.skip(self._body_size)
        elif not self._body_rate.is_enough(self._body_size):
            self.refuse(RequestTooSlow("the body of the request arrived too slowly"))
            return
        self._arm(self._limits.body_check)


def _json_headers(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
