"""What became of events as OpenTelemetry spans, in the trace of the event that came. Pure, and a port.

A rollout takes minutes and outlives the process that began it, so its span is made whole when it ends, with the times
that the objects tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from clusters.base.objects import Object, parse_timestamp
from eventing.objects.model_event import ModelEvent
from eventing.objects.outbox import FAILED, PROMOTED, ROLLED_BACK, Entry

BAD = frozenset({ROLLED_BACK, FAILED})
OUTCOMES = {PROMOTED: "promoted", ROLLED_BACK: "rolledback", FAILED: "failed"}
"""By type of event: what the attribute `knodel.outcome` says."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened within a span."""

    name: str
    at: datetime
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A span that is over; `traceparent` is its parent's, empty for a trace of its own. `error` empty: all is well."""

    name: str
    traceparent: str
    start: datetime
    end: datetime
    attributes: Mapping[str, Any] = field(default_factory=dict)
    marks: Sequence[Mark] = ()
    error: str = ""


class Spans(Protocol):
    """Takes spans; never fails, and nobody waits for it."""

    def record(self, span: Span) -> None:
        """Hand one over."""
        ...

    def close(self) -> None:
        """Send what is left; may block."""
        ...


def span_of_event(event: ModelEvent) -> Span | None:
    """From its arrival until it was applied or put aside; None while it is neither."""
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


def span_of_rollout(entry: Entry, traceparent: str) -> Span | None:
    """From a version's beginning to the end that the entry tells, with its steps; None for one that tells no end."""
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
    marks = tuple(map(_mark_of, data.get("passed", ())))
    error = "; ".join(data.get("reasons", ())) or outcome if entry.type in BAD else ""
    return Span(f"rollout {data.get('model')}", traceparent, min(start, end), end, attributes, marks, error)


def _mark_of(passed: Object) -> Mark:
    decision = (passed.get("verdict") or {}).get("decision", "")
    attributes = {"knodel.percent": passed["percent"], "knodel.verdict": decision}
    return Mark(f"{passed['percent']} % passed", parse_timestamp(passed["until"]), attributes)
