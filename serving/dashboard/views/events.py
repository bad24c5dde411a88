"""The events of the platform, and the way from one to its outcome. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.base.objects import Object, name_of, namespace_of
from eventing.objects.outgoing import is_outgoing
from serving.client.models.event_timeline import TimelineEntry, cause_of, timeline
from serving.client.models.model_events import model_of, spec_of, status_of
from serving.types.model import history_of

MOST: Final = 200
"""Events of one page."""
FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True)
class EventLine:
    """What the list of events shows of one."""

    namespace: str
    name: str
    at: str
    id: str
    type: str
    source: str
    model: str
    phase: str
    message: str
    is_outgoing: bool


def event_line(event: Object) -> EventLine:
    """Return the line of a ModelEvent."""
    spec, status = spec_of(event), status_of(event)
    return EventLine(
        namespace=namespace_of(event),
        name=name_of(event),
        at=str(spec.get("receivedAt") or ""),
        id=str(spec.get("id") or ""),
        type=str(spec.get("type") or ""),
        source=str(spec.get("source") or ""),
        model=model_of(event),
        phase=str(status.get("phase") or ""),
        message=str(status.get("message") or spec.get("ignored") or ""),
        is_outgoing=is_outgoing(event),
    )


def event_lines(events: Iterable[Object], phase: str = "", most: int = MOST) -> list[EventLine]:
    """Return the newest events, of one phase if it is given, newest first."""
    found = [line for event in events if (line := event_line(event)) and phase in ("", line.phase)]
    found.sort(key=lambda line: (line.at, line.name), reverse=True)
    return found[:most]


def caused_by(event: Object, events: Iterable[Object]) -> list[Object]:
    """Return the outgoing events with this event as their cause."""
    wanted = (spec_of(event).get("id"), spec_of(event).get("source"))
    return [
        one for one in events if is_outgoing(one) and (cause_of(one).get("id"), cause_of(one).get("source")) == wanted
    ]


def trace(event: Object, model: Object | None, events: Iterable[Object]) -> list[TimelineEntry]:
    """Return what an event caused, from the training to the outcome."""
    return timeline(event, model, caused_by(event, events))


def last_trace(model: Object, events: Sequence[Object]) -> list[TimelineEntry]:
    """Return the trace of the event that made the newest version of a Model; empty if a person made it."""
    causes = [one.cause for one in history_of(model) if one.cause.by == "event"]
    for cause in reversed(causes):
        for event in events:
            spec = spec_of(event)
            if not is_outgoing(event) and (spec.get("id"), spec.get("source")) == (cause.id, cause.source):
                return trace(event, model, events)
    return []
