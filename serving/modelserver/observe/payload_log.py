"""Requests for inferences and their answers, or a share of them, sent to a URL as CloudEvents; off unless asked for.

As KServe's inference logger does: both events have the id of the request, an answer is logged when its status is 200,
and nobody waits for the log. Payloads are kept as the pieces they travel in, without a copy, and within a bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.modelserver.base.headers import Headers
from serving.modelserver.base.observability_options import PayloadOptions
from serving.modelserver.observe.observed import OTHER, PARENT_KEY, protocol_of
from serving.modelserver.observe.payload_event import REQUEST, RESPONSE, Origin, payload_event, request_id
from serving.modelserver.observe.payload_sender import MOST_BYTES, PayloadSender

_OK: Final = 200


class PayloadLog:
    """What `wrap` gives logs payloads through `sender`; `random` gives numbers in [0, 1)."""

    def __init__(self, options: PayloadOptions, sender: PayloadSender, random: Callable[[], float]) -> None:
        self.sender = sender
        self._options = options
        self._random = random

    def close(self, patience: float) -> None:
        """Send what is left, within `patience` seconds; blocks."""
        self.sender.close(patience)

    def wrap(self, app: ASGIApp, model: str, revision: str) -> ASGIApp:
        """`app` of this model, logged."""
        origin = Origin(model, revision, self._options.namespace)

        async def logged(scope: Scope, receive: Receive, send: Send) -> None:
            wanted = protocol_of(scope["method"], scope["path"]) != OTHER and self._random() < self._options.share
            if not wanted:
                await app(scope, receive, send)
                return
            request, response = _Payload(scope["headers"]), _Payload([])
            try:
                await app(scope, _heard(receive, request), _said(send, response))
            finally:
                self._offer(origin, scope, request, response)

        return logged

    def _offer(self, origin: Origin, scope: Scope, request: _Payload, response: _Payload) -> None:
        name = request_id(request.headers)
        if self._options.mode != "response" and request.complete:
            self._send(REQUEST, name, origin, scope, request)
        if self._options.mode != "request" and response.complete and response.status == _OK:
            self._send(RESPONSE, name, origin, scope, response)

    def _send(self, type: str, name: str, origin: Origin, scope: Scope, payload: _Payload) -> None:
        if payload.too_large:
            self.sender.drop()
            return
        parent = scope.get(PARENT_KEY, "")
        self.sender.offer(payload_event(type, name, payload.at, origin, payload.headers, payload.body, parent))


class _Payload:
    """What was seen of one half."""

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
        """A piece of the body."""
        piece = message.get("body", b"")
        self.size += len(piece)
        if self.size > MOST_BYTES:
            self.too_large = True
            self.body.clear()
        elif piece:
            self.body.append(piece)
        if not message.get("more_body"):
            self.complete = True
            self.at = datetime.now(UTC).isoformat(timespec="milliseconds")


def _heard(receive: Receive, request: _Payload) -> Receive:
    async def hear() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            request.add(message)
        return message

    return hear


def _said(send: Send, response: _Payload) -> Send:
    def say(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            response.status, response.headers = message["status"], message["headers"]
        elif message["type"] == "http.response.body":
            response.add(message)
        return send(message)

    return say
