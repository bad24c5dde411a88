"""Events for the endpoints of inference: a CloudEvent whose data is a request is answered by a CloudEvent.

So a broker can send its events to a model as they are, and the answers go back to it. An answer comes in the mode in
which the event came; one that is an error is answered as to any caller, since senders of events look at the status.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.modelserver.base.errors import BadRequest, ClientLeft, ServingError
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.responses import JSON, send_body, send_error
from serving.modelserver.codec.bounded_read import ReplayReceive, read_body
from serving.modelserver.codec.cloud_event import (
    STRUCTURED,
    CloudEvent,
    from_binary,
    from_structured,
    is_structured,
    to_binary,
    to_structured,
)
from serving.modelserver.execution.inference import Inference

TYPE: Final = "io.kserve.inference.response"
SOURCE: Final = "io.kserve.inference.{name}"
"""As KServe names the event of an answer (`create_response_cloudevent`)."""
CARRIED: Final = ("correlationid", "traceparent", "tracestate")
"""Extension attributes that an answer has from its request."""
CAUSE: Final = "causationid"
"""Extension attribute: the id of the event that an event answers."""
QUICK: Final = 256 * 1024  # bytes; such an event is read in a millisecond, larger ones in a thread
_OK: Final = 200
_OF_ANOTHER: Final = frozenset({b"content-type", b"content-length", b"content-encoding", b"accept"})
"""Headers that do not describe the data of a structured event."""


class CloudEventEndpoint:
    """Wraps the endpoint `app` of the model `name`, for events only; `now` gives the time of answers."""

    def __init__(
        self, app: ASGIApp, inference: Inference, budget: BodyBudget, name: str, now: Callable[[], datetime]
    ) -> None:
        self._app = app
        self._inference = inference
        self._budget = budget
        self._source = SOURCE.format(name=name)
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one event."""
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
        plain = [(name, value) for name, value in headers if name != b"accept"]  # an event is no stream of them
        answer = _Answer()
        await self._app({**scope, "headers": plain}, receive, answer)
        if answer.status != _OK:
            await answer.send_on(send)
            return
        content_type, others = answer.described()
        await send_body(send, _OK, answer.body, content_type, [*to_binary(self._answer_to(event)), *others])

    async def _structured(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._inference.model().codec.limits.body
        headers = scope["headers"]
        untyped = [(name, value) for name, value in headers if name != b"content-type"]
        body = await read_body({**scope, "headers": untyped}, receive, self._budget, limit)
        try:
            event = await _read(body.content)
            plain = [(name, value) for name, value in headers if name not in _OF_ANOTHER]
            typed = [*plain, (b"content-type", event.content_type.encode("ascii"))]
            answer = _Answer()
            await self._app({**scope, "headers": typed}, ReplayReceive(event.data, receive), answer)
        finally:
            self._budget.give_back(body.lent)
        if answer.status != _OK:
            await answer.send_on(send)
            return
        if answer.described()[0] != JSON:
            raise BadRequest("a structured event has no binary tensors: send it in binary mode, or ask for JSON")
        await send_body(send, _OK, to_structured(self._answer_to(event, answer.body)), STRUCTURED, [])

    def _answer_to(self, event: CloudEvent, data: bytes = b"") -> CloudEvent:
        """A copy of the event is answered under the same id, so that copies of the answer are known as such."""
        given = event.attributes
        attributes = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._source} {given['source']} {given['id']}")),
            "source": self._source,
            "type": TYPE,
            "time": self._now().isoformat(),
            CAUSE: given["id"],
            **{name: given[name] for name in CARRIED if name in given},
        }
        return CloudEvent(attributes, JSON.decode(), data)


async def _read(content: bytes) -> CloudEvent:
    """Raises BadRequest, TooLarge."""
    return from_structured(content) if len(content) <= QUICK else await asyncio.to_thread(from_structured, content)


class _Answer:
    """ASGI's `send` of an endpoint: keeps the answer."""

    def __init__(self) -> None:
        self.status = 0  # of no answer: the caller left
        self.body = b""
        self._headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self._headers = message["status"], message["headers"]
        else:
            self.body += message.get("body", b"")

    async def send_on(self, send: Send) -> None:
        """Answer with it as it is."""
        if self.status:
            await send({"type": "http.response.start", "status": self.status, "headers": self._headers})
            await send({"type": "http.response.body", "body": self.body})

    def described(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """The type of the body, and headers besides type and length."""
        headers = dict(self._headers)
        content_type = headers.pop(b"content-type")
        headers.pop(b"content-length", None)
        return content_type, list(headers.items())
