"""Build the timeline of an event: its revision, the rollout steps with their verdicts, the outcome. Pure.

The inputs are the received ModelEvent, the outgoing ones that it caused, and the Model with its history and rollout.
Events expire; for expired ones, the timeline uses the history and rollout of the Model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from clusters.base.objects import Object, parse_timestamp
from serving.client.models.model_events import model_of, spec_of, status_of
from serving.reconciler.rollout.state import Judgement, Passed, join_reasons, moment, rollout_of
from serving.types.model import HistoryEntry, history_of

BEFORE: Final = frozenset({"sent", "received"})
"""Entries from before the event was processed."""
ORDER: Final = ("sent", "received", "applied", "revision", "started", "verdict", "step")
"""Order of entries with the same time; all others come after these."""
BAD: Final = frozenset({"rolledback", "failed"})
"""Outcomes that are printed with all their reasons."""
NUMBERS: Final = 8
"""Numbers of a verdict in one line; the object has all."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line: the time (RFC 3339), the kind of entry in one word, and the details."""

    at: str
    kind: str
    detail: str


def cause_of(event: Object) -> Mapping[str, Any]:
    """Return the cause of the version in an outgoing event; empty for other events."""
    cause = _data_of(event).get("cause")
    return cause if isinstance(cause, Mapping) else {}


def timeline(event: Object, model: Object | None, outgoing: Sequence[Object]) -> list[TimelineEntry]:
    """Return the known consequences of `event` in order of time; `outgoing` are the events that it caused.

    Times of Kubernetes have whole seconds, so consequences are moved to the arrival of the event if they seem earlier.
    """
    record, types = _record_of(event, model), {str(spec_of(one).get("type")) for one in outgoing}
    entries = [*_arrival(event), *_steps(model, record, outgoing), *(_of_outgoing(one) for one in outgoing)]
    if record is not None:
        version = f", version {record.version}" if record.version else ""
        entries.append(TimelineEntry(record.at, "revision", f"{record.revision}{version} was created"))
        if record.promoted_at and not any(one.endswith(".promoted.v1") for one in types):
            entries.append(TimelineEntry(record.promoted_at, "promoted", f"{record.revision} has all the traffic"))
    arrived = parse_timestamp(status_of(event).get("at") or spec_of(event)["receivedAt"])
    ranked = []
    for entry in entries:
        at = parse_timestamp(entry.at)
        rank = ORDER.index(entry.kind) if entry.kind in ORDER else len(ORDER)
        ranked.append((at if entry.kind in BEFORE else max(at, arrived), rank, entry))
    return [replace(entry, at=moment(at)) for at, _, entry in sorted(ranked, key=lambda one: one[:2])]


def _arrival(event: Object) -> Iterator[TimelineEntry]:
    spec, status = spec_of(event), status_of(event)
    if spec.get("time"):
        yield TimelineEntry(spec["time"], "sent", f"{spec.get('type')} by {spec.get('source')}, id {spec.get('id')}")
    change = spec.get("change") or {}
    about = f" for {model_of(event)}" if model_of(event) else ""
    uri = f": {change['storageUri']}" if change.get("storageUri") else ""
    yield TimelineEntry(spec["receivedAt"], "received", f"by EventSource {spec.get('eventSource')}{about}{uri}")
    if status.get("at"):
        yield TimelineEntry(status["at"], status["phase"].lower(), status.get("message", ""))
    elif status.get("retryAt"):
        attempts = f"after {status.get('attempts')} attempts: {status.get('message', '')}"
        yield TimelineEntry(status["retryAt"], "next try", attempts)


def _record_of(event: Object, model: Object | None) -> HistoryEntry | None:
    """Return the history record of the version that the event caused."""
    spec = spec_of(event)
    wanted = (spec.get("id"), spec.get("source"))
    records = history_of(model) if model is not None else ()
    return next(
        (one for one in records if one.cause.by == "event" and (one.cause.id, one.cause.source) == wanted), None
    )


def _of_outgoing(event: Object) -> TimelineEntry:
    spec, status, data = spec_of(event), status_of(event), _data_of(event)
    verb = str(spec.get("type", "")).split(".")[-2:][0]
    share = f"{data['percent']} %: " if "percent" in data else ""
    reasons = list(data.get("reasons") or ())
    text = join_reasons(reasons if verb in BAD else reasons[:1]) or str(data.get("revision", ""))
    unsent = {"Accepted": "not sent yet", "Failed": "not sent"}.get(status["phase"], "")
    why = f" ({': '.join(filter(None, (unsent, status.get('message', ''))))})" if unsent else ""
    return TimelineEntry(str(spec.get("time") or spec["receivedAt"]), verb, f"{share}{text}{why}")


def _steps(model: Object | None, record: HistoryEntry | None, outgoing: Sequence[Object]) -> Iterator[TimelineEntry]:
    """Yield the steps with their verdicts and the last verdict, from the Model's rollout, else from the last event."""
    state = rollout_of(model) if model is not None and record is not None else None
    if state is None or record is None or state.candidate != record.revision:
        known = next((found for one in reversed(outgoing) if (found := _data_of(one).get("passed"))), ())
        yield from (_of_step(Passed.from_json(one)) for one in known)
        return
    yield from map(_of_step, state.passed)
    if state.judgement is not None and state.judgement not in [passed.judgement for passed in state.passed]:
        yield TimelineEntry(state.judgement.at, "verdict", _of_judgement(state.judgement))


def _of_step(passed: Passed) -> TimelineEntry:
    verdict = _of_judgement(passed.judgement) if passed.judgement is not None else "passed"
    return TimelineEntry(passed.until, "step", f"{passed.percent} % since {passed.since}: {verdict}")


def _of_judgement(judgement: Judgement) -> str:
    verdict = judgement.verdict
    numbers = ", ".join(f"{name} {value:g}" for name, value in list(verdict.numbers.items())[:NUMBERS])
    return f"{verdict.decision}: {join_reasons(verdict.reasons)}" + (f" [{numbers}]" if numbers else "")


def _data_of(event: Object) -> Mapping[str, Any]:
    """Return the data of an outgoing event; its `spec.data` is the whole CloudEvent."""
    whole = spec_of(event).get("data")
    data = whole.get("data") if isinstance(whole, Mapping) else None
    return data if isinstance(data, Mapping) else {}
