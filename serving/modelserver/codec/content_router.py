"""Route inference requests by their headers: plain ones, ones with a streamed response, CloudEvents.

All inferences pass here. The code for CloudEvents is imported with the first event: few servers receive any, and the
import would slow down the start of all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX: Final = b"ce-"
"""Prefix of headers that carry attributes of an event in binary mode."""
EVENT_TYPES: Final = b"application/cloudevents"
"""Prefix of all media types of CloudEvents."""
EVENT_STREAM: Final = b"text/event-stream"
"""Media type in Accept that asks for a stream of server-sent events."""
_JSON: Final = b"application/json"  # the type of nearly all requests
_WEIGHT: Final = re.compile(rb"0(\.[0-9]{0,3})?|1(\.0{0,3})?")  # RFC 9110, 12.4.2


class ContentRouter:
    """An ASGI endpoint that routes to `make_events(app)` for CloudEvents, to `stream` for streams, and else to `app`.

    The response to a CloudEvent is one CloudEvent, even if the sender accepts a stream.
    """

    def __init__(self, app: ASGIApp, stream: ASGIApp, make_events: Callable[[ASGIApp], ASGIApp]) -> None:
        self._app = app
        self._stream = stream
        self._make_events = make_events
        self._events: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one request."""
        app = self._app
        for name, value in scope["headers"]:
            if name == b"content-type":
                if value != _JSON and value[: len(EVENT_TYPES)].lower() == EVENT_TYPES:
                    app = self._for_events()
                    break
            elif name == b"accept":
                if EVENT_STREAM in value.lower() and prefers_stream(value):
                    app = self._stream
            elif name[:3] == PREFIX:
                app = self._for_events()
                break
        await app(scope, receive, send)

    def _for_events(self) -> ASGIApp:
        if self._events is None:
            self._events = self._make_events(self._app)
        return self._events


def prefers_stream(accepted: bytes) -> bool:
    """Return whether this Accept header prefers a stream of events to JSON. Pure.

    Example:
        prefers_stream(b"application/json, text/event-stream;q=0.5")  # False
    """
    weights = {_JSON: 0.0, EVENT_STREAM: 0.0}
    for offer in accepted.lower().split(b","):
        kind, *parameters = (part.strip() for part in offer.split(b";"))
        if kind in weights:
            weight = next((one[2:] for one in parameters if one.startswith(b"q=")), b"1")
            weights[kind] = float(weight) if _WEIGHT.fullmatch(weight) else 1.0  # a malformed one counts as 1
    return weights[EVENT_STREAM] > 0 and weights[EVENT_STREAM] >= weights[_JSON]
