"""Make the Kubernetes Events for a change of a Model's status. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from clusters.base.objects import GPU_LOST, Object, condition_of
from serving.reconciler.rollout.state import held_by, join_reasons, rollout_of
from serving.reconciler.rollout.steps import start_reason
from serving.types.lifecycle import REPLICAS_STARTED
from serving.types.model import HistoryEntry


@dataclass(frozen=True, slots=True)
class KubernetesEvent:
    """One Event to record about the Model."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def events_of_change(before: Object, after: Object) -> list[KubernetesEvent]:
    """Return the Events for the difference between two states of the same Model."""
    return [
        *_of_versions(before, after),
        *_of_conditions(before, after),
        *_of_rollout(before, after),
    ]


def _of_versions(before: Object, after: Object) -> Iterator[KubernetesEvent]:
    """Return Events for new entries of the history, and for changed outcomes."""
    former = _lines(before)
    for key, entry in _lines(after).items():
        known = former.get(key)
        called = f"{entry.revision} (version {entry.version})" if entry.version else entry.revision
        if known is None and entry.outcome != "promoted":
            yield KubernetesEvent("Normal", "RevisionCreated", f"{called} was created from {entry.storage_uri}")
        outcome = known.outcome if known is not None else ""
        if outcome == entry.outcome:
            continue
        if entry.outcome == "promoted":
            yield KubernetesEvent("Normal", "Promoted", f"{called} gets all traffic")
        elif entry.outcome == "rolledback":
            yield KubernetesEvent("Warning", "RolledBack", f"{called} was rolled back")
        elif entry.outcome == "failed":
            reason = (condition_of(after, "ConfigurationsReady") or {}).get("message", "")
            yield KubernetesEvent("Warning", "RevisionFailed", f"{called} did not become ready: {reason}")


def _of_conditions(before: Object, after: Object) -> Iterator[KubernetesEvent]:
    """Return Events for a new latest ready revision, a new traffic split, refused objects, and a GPU that is lost."""
    ready = _status(after).get("latestReadyRevision")
    if ready and ready != _status(before).get("latestReadyRevision"):
        yield KubernetesEvent("Normal", "RevisionReady", f"{ready} is ready")
    split = _split(after)
    if split and split != _split(before):
        yield KubernetesEvent("Normal", "TrafficChanged", f"traffic is now {split}")
    former, present = (condition_of(obj, "ObjectsApplied") or {} for obj in (before, after))
    if present.get("status") == "False" and former.get("message") != present.get("message"):
        yield KubernetesEvent("Warning", str(present.get("reason", "Refused")), str(present.get("message", "")))
    former, present = (condition_of(obj, REPLICAS_STARTED) or {} for obj in (before, after))
    if present.get("reason") == GPU_LOST and former.get("message") != present.get("message"):
        yield KubernetesEvent("Warning", GPU_LOST, str(present.get("message", "")))


def _of_rollout(before: Object, after: Object) -> Iterator[KubernetesEvent]:
    """Return Events for starts, steps, pauses and ends of rollouts."""
    former, present = rollout_of(before), rollout_of(after)
    if present is None:
        return
    if former is None or former.candidate != present.candidate or former.started_at != present.started_at:
        yield KubernetesEvent("Normal", "RolloutStarted", start_reason(present.candidate, present.stable))
        former = None
    reasons = join_reasons(present.reasons)
    if present.phase != (former.phase if former is not None else "Progressing"):
        kind: Literal["Normal", "Warning"] = "Warning" if present.refuses else "Normal"
        yield KubernetesEvent(kind, f"Rollout{present.phase}", f"{present.candidate}: {reasons}")
    elif (held := held_by(present)) is not None and (former is None or held_by(former) is None):
        yield KubernetesEvent("Warning", "RolloutHeld", f"{present.candidate}: {held[1]}")
    elif former is not None and present.percent != former.percent:
        message = f"{present.candidate} gets {present.percent} %: {reasons}"
        yield KubernetesEvent("Normal", "RolloutProgressed", message)


def _lines(obj: Object) -> dict[tuple[str, str, str], HistoryEntry]:
    entries = (HistoryEntry.from_json(entry) for entry in _status(obj).get("history") or ())
    return {(entry.revision, entry.at, entry.cause.by): entry for entry in entries}


def _split(obj: Object) -> str:
    entries = _status(obj).get("traffic") or ()
    return ", ".join(
        f"{entry['revision']}={entry.get('percent', 0)}" + (f" ({entry['tag']})" if entry.get("tag") else "")
        for entry in entries
    )


def _status(obj: Object) -> Object:
    return obj.get("status") or {}
