"""OpenTelemetry spans for events and rollouts, in the trace of the received event. Pure, with the interface `Spans`.

A rollout takes minutes and may outlive the process that started it. Its span is therefore created when it ends, with
the times from the objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from clusters.base.objects import Object, parse_timestamp
from eventing.objects.model_event import ModelEvent
from eventing.objects.outbox import FAILED, PROMOTED, ROLLED_BACK, OutboxEntry

BAD = frozenset({ROLLED_BACK, FAILED})
OUTCOMES = {PROMOTED: "promoted", ROLLED_BACK: "rolledback", FAILED: "failed"}
"""Values of the attribute `knodel.outcome` by event type."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event within a span."""

    name: str
    at: datetime
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span. `traceparent`: the parent's, empty to start a trace; `error`: empty for success."""

    name: str
    traceparent: str
    start: datetime
    end: datetime
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    error: str = ""


class Spans(Protocol):
    """Exports spans. `record` never raises or blocks."""

    def record(self, span: Span) -> None:
        """Enqueue one span."""
        ...

    def close(self) -> None:
        """Send the remaining spans; may block."""
        ...


def span_of_event(event: ModelEvent) -> Span | None:
    """Return the span from the event's arrival to its final phase, None while it is pending."""
    spec, status = event.spec, event.status
    if status.at is None:
        return None
    attributes = {
        "cloudevents.event_id": spec.id,
        "cloudevents.event_source": spec.source,
        "cloudevents.event_type": spec.type,
        "knodel.phase": status.phase,
        **({"knodel.model": str(spec.model)} if spec.model is not None else {}),
    }
    error = status.message if status.phase == "Failed" else ""
    end = max(status.at, spec.received_at)
    return Span(f"event {status.phase.lower()}", spec.traceparent, spec.received_at, end, attributes, (), error)


def span_of_rollout(entry: OutboxEntry, traceparent: str) -> Span | None:
    """Return the span of a rollout from the start of its version to its end, None if the entry is not about its end."""
    outcome, data = OUTCOMES.get(entry.type), entry.data
    begun = data.get("startedAt") or data.get("createdAt")
    if outcome is None or not begun:
        return None
    attributes = {
        "knodel.model": f"{data.get('namespace')}/{data.get('model')}",
        "knodel.revision": entry.subject,
        "knodel.outcome": outcome,
        **({"cloudevents.event_id": entry.causationid} if entry.causationid else {}),
    }
    start, end = parse_timestamp(begun), parse_timestamp(entry.time)
    steps = tuple(map(_step_event, data.get("passed", ())))
    error = "; ".join(data.get("reasons", ())) or outcome if entry.type in BAD else ""
    return Span(f"rollout {data.get('model')}", traceparent, min(start, end), end, attributes, steps, error)


def _step_event(step: Object) -> SpanEvent:
    """Return the span event for a completed step of a rollout."""
    decision = (step.get("verdict") or {}).get("decision", "")
    attributes = {"knodel.percent": step["percent"], "knodel.verdict": decision}
    return SpanEvent(f"{step['percent']} % passed", parse_timestamp(step["until"]), attributes)
