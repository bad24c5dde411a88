"""Reads every event: our own as it is, foreign ones as their EventSource's mapping says. Pure."""

from __future__ import annotations

from eventing.mapping.training import TYPE, TrainingMapper
from eventing.objects.event import Event
from eventing.objects.ports import EventSource, Mapped


class EventMapper:
    """`ports.Mapper`."""

    def __init__(self) -> None:
        self._own = TrainingMapper()

    def map(self, source: EventSource, event: Event) -> Mapped:
        """What `event` means. Raises BadEvent (400)."""
        if source.mapping is None or event.type == TYPE:
            return self._own.map(source, event)
        return source.mapping.map(event, source.namespace)
