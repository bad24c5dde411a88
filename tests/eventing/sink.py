"""An event sink and a span exporter in memory, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventing.outbound.sink import NotDelivered
from eventing.outbound.spans import Span


class ListedSink:
    """An `eventing.outbound.sink.Sink` in memory; it refuses with `failure`, or only the events of `refused` ids."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.tries: list[str] = []
        self.failure: NotDelivered | None = None
        self.refused: dict[str, NotDelivered] = {}
        self.closed = False

    async def send(self, event: Mapping[str, Any]) -> str:
        """Keep it."""
        self.tries.append(event["id"])
        failure = self.failure or self.refused.get(event["id"])
        if failure is not None:
            raise failure
        self.sent.append(event)
        return "the sink answered 202"

    async def close(self) -> None:
        """Note it."""
        self.closed = True

    @property
    def ids(self) -> list[str]:
        """Of what was taken, in order."""
        return [event["id"] for event in self.sent]


class ListedSpans:
    """`eventing.outbound.spans.Spans` in memory."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def record(self, span: Span) -> None:
        """Keep it."""
        self.spans.append(span)

    def close(self) -> None:
        """Nothing is left."""
