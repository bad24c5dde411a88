"""Which requests are CloudEvents: known by their headers, on the way of every inference.

What reads and writes events is imported when the first one comes: few servers get any, and all of them start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX: Final = b"ce-"
"""Of the headers that carry attributes in binary mode."""
EVENT_TYPES: Final = b"application/cloudevents"
"""How every media type of events begins."""
_JSON: Final = b"application/json"  # of nearly all requests


class EventGate:
    """ASGI endpoint: events are for what `make_events` makes, all else is for `app`."""

    def __init__(self, app: ASGIApp, make_events: Callable[[ASGIApp], ASGIApp]) -> None:
        self._app = app
        self._make_events = make_events
        self._events: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not is_event(scope["headers"]):
            await self._app(scope, receive, send)
            return
        if self._events is None:
            self._events = self._make_events(self._app)
        await self._events(scope, receive, send)


def is_event(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request carries an event, or tries to."""
    for name, value in headers:
        if name == b"content-type":
            if value != _JSON and value[: len(EVENT_TYPES)].lower() == EVENT_TYPES:
                return True
        elif name[:3] == PREFIX:
            return True
    return False
