"""Inference by CloudEvents: the data of the event is a request, and the response is a CloudEvent with the result.

So a broker can send events to a model directly, and receives the responses. The response has the mode (binary or
structured) of the event. Errors are plain responses, because senders of events only check the status.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clusters.net.cloudevents import STRUCTURED
from serving.modelserver.base.errors import ClientLeft, InvalidRequest, ServingError
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.responses import JSON, send_body, send_error
from serving.modelserver.codec.bounded_read import ReplayReceive, read_body
from serving.modelserver.codec.cloud_event import (
    CloudEvent,
    from_binary,
    from_structured,
    is_structured,
    to_binary,
    to_structured,
)
from serving.modelserver.execution.inference import Inference

RESPONSE_TYPE: Final = "io.kserve.inference.response"
RESPONSE_SOURCE: Final = "io.kserve.inference.{name}"
"""KServe's source of response events (`create_response_cloudevent`)."""
COPIED_ATTRIBUTES: Final = ("correlationid", "traceparent", "tracestate")
"""Extension attributes that are copied from the request to the response."""
CAUSE_ATTRIBUTE: Final = "causationid"
"""Extension attribute with the id of the event that caused the response."""
INLINE_SIZE: Final = 256 * 1024  # bytes; such an event is parsed in a millisecond, and larger ones in a thread
_OK: Final = 200
_NOT_OF_DATA: Final = frozenset({b"content-type", b"content-length", b"content-encoding", b"accept"})
"""Headers that do not describe the data of a structured event."""


class CloudEventEndpoint:
    """An ASGI endpoint for CloudEvents around the endpoint `app` of the model `name`; `now` returns the time."""

    def __init__(
        self, app: ASGIApp, inference: Inference, budget: BodyBudget, name: str, now: Callable[[], datetime]
    ) -> None:
        self._app = app
        self._inference = inference
        self._budget = budget
        self._source = RESPONSE_SOURCE.format(name=name)
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one event."""
        try:
            if is_structured(scope["headers"]):
                await self._structured(scope, receive, send)
            else:
                await self._binary(scope, receive, send)
        except ClientLeft:
            return
        except ServingError as error:
            await send_error(send, error)

    async def _binary(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        event = from_binary(headers)
        # without Accept: the response is one event, not a stream
        plain = [(name, value) for name, value in headers if name != b"accept"]
        response = _CapturedResponse()
        await self._app({**scope, "headers": plain}, receive, response)
        if response.status != _OK:
            await response.forward(send)
            return
        content_type, others = response.split_headers()
        await send_body(send, _OK, response.body, content_type, [*to_binary(self._response_to(event)), *others])

    async def _structured(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._inference.model().codec.limits.body
        headers = scope["headers"]
        untyped = [(name, value) for name, value in headers if name != b"content-type"]
        body = await read_body({**scope, "headers": untyped}, receive, self._budget, limit)
        try:
            content = body.content
            is_quick = len(content) <= INLINE_SIZE
            event = from_structured(content) if is_quick else await asyncio.to_thread(from_structured, content)
            plain = [(name, value) for name, value in headers if name not in _NOT_OF_DATA]
            typed = [*plain, (b"content-type", event.content_type.encode("ascii"))]
            response = _CapturedResponse()
            await self._app({**scope, "headers": typed}, ReplayReceive(event.data, receive), response)
        finally:
            self._budget.give_back(body.lent)
        if response.status != _OK:
            await response.forward(send)
            return
        if response.split_headers()[0] != JSON:
            raise InvalidRequest("a structured event cannot have binary tensors: use binary mode, or request JSON")
        await send_body(send, _OK, to_structured(self._response_to(event, response.body)), STRUCTURED.encode(), [])

    def _response_to(self, event: CloudEvent, data: bytes = b"") -> CloudEvent:
        """Return the response event. Its id is a function of the event, so that a broker can discard duplicates."""
        given = event.attributes
        attributes = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._source} {given['source']} {given['id']}")),
            "source": self._source,
            "type": RESPONSE_TYPE,
            "time": self._now().isoformat(),
            CAUSE_ATTRIBUTE: given["id"],
            **{name: given[name] for name in COPIED_ATTRIBUTES if name in given},
        }
        return CloudEvent(attributes, JSON.decode(), data)


class _CapturedResponse:
    """An ASGI `send` that stores the response."""

    def __init__(self) -> None:
        self.status = 0  # 0 without a response: the client disconnected
        self.body = b""
        self._headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self._headers = message["status"], message["headers"]
        else:
            self.body += message.get("body", b"")

    async def forward(self, send: Send) -> None:
        """Send the stored response."""
        if self.status:
            await send({"type": "http.response.start", "status": self.status, "headers": self._headers})
            await send({"type": "http.response.body", "body": self.body})

    def split_headers(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Return the content type, and the headers other than content type and length."""
        headers = dict(self._headers)
        content_type = headers.pop(b"content-type")
        headers.pop(b"content-length", None)
        return content_type, list(headers.items())
