"""The payload log: sends inference requests and responses, or a sample, to a URL as CloudEvents. Off by default.

It behaves as KServe's inference logger: both events have the id of the request, only responses with status 200 are
logged, and requests never wait for the log. Payloads are kept as the received chunks, without a copy, and bounded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.modelserver.base.headers import Headers
from serving.modelserver.base.observability_options import PayloadOptions
from serving.modelserver.base.responses import RECORDED_KEY
from serving.modelserver.observe.middleware import OTHER, PARENT_KEY, protocol_of
from serving.modelserver.observe.payload_event import REQUEST, RESPONSE, Origin, payload_event, request_id
from serving.modelserver.observe.payload_sender import MAX_BYTES, PayloadSender

_OK: Final = 200


class PayloadLog:
    """Logs the payloads of wrapped applications through `sender`. `random` returns numbers in [0, 1)."""

    def __init__(self, options: PayloadOptions, sender: PayloadSender, random: Callable[[], float]) -> None:
        self.sender = sender
        self._options = options
        self._random = random

    def close(self, timeout: float) -> None:
        """Send the remaining events, within `timeout` seconds; blocks."""
        self.sender.close(timeout)

    def wrap(self, app: ASGIApp, model: str, revision: str, own_paths: Callable[[], bool] = lambda: False) -> ASGIApp:
        """Return the `app` of this model with payload logging. `own_paths`: the model itself answers all paths."""
        origin = Origin(model, revision, self._options.namespace)

        async def logged(scope: Scope, receive: Receive, send: Send) -> None:
            protocol = protocol_of(scope["method"], scope["path"], own_paths())
            if protocol == OTHER or self._random() >= self._options.share:
                await app(scope, receive, send)
                return
            request, response = _Payload(scope["headers"]), _Payload([])
            scope[RECORDED_KEY] = True
            try:
                await app(scope, _record_request(receive, request), _record_response(send, response))
            finally:
                name = request_id(request.headers)
                if self._options.mode != "response" and request.complete:
                    self._send(REQUEST, name, origin, scope, request)
                if self._options.mode != "request" and response.complete and response.status == _OK:
                    self._send(RESPONSE, name, origin, scope, response)

        return logged

    def _send(self, type: str, name: str, origin: Origin, scope: Scope, payload: _Payload) -> None:
        if payload.too_large:
            self.sender.drop()
            return
        parent = scope.get(PARENT_KEY, "")
        self.sender.offer(payload_event(type, name, payload.at, origin, payload.headers, payload.body, parent))


class _Payload:
    """The recorded request or response."""

    __slots__ = ("at", "body", "complete", "headers", "size", "status", "too_large")

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self.status = 0
        self.at = ""
        self.body: list[bytes] = []
        self.size = 0
        self.complete = False
        self.too_large = False

    def add(self, message: Message) -> None:
        """Record a chunk of the body."""
        chunk = message.get("body", b"")
        self.size += len(chunk)
        if self.size > MAX_BYTES:
            self.too_large = True
            self.body.clear()
        elif chunk:
            self.body.append(chunk)
        if not message.get("more_body"):
            self.complete = True
            self.at = datetime.now(UTC).isoformat(timespec="milliseconds")


def _record_request(receive: Receive, request: _Payload) -> Receive:
    async def receive_and_record() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            request.add(message)
        return message

    return receive_and_record


def _record_response(send: Send, response: _Payload) -> Send:
    def record_and_send(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            response.status, response.headers = message["status"], message["headers"]
        elif message["type"] == "http.response.body":
            response.add(message)
        return send(message)

    return record_and_send
