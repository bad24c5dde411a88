"""Which Kubernetes Events a change of a Model's status is worth. Pure: the difference of two statuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from clusters.base.objects import Object, condition_of
from serving.reconciler.rollout.held import held_by
from serving.reconciler.rollout.state import rollout_of, words
from serving.types.model import HistoryEntry


@dataclass(frozen=True, slots=True)
class Note:
    """One Event to record about the Model."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def notes(before: Object, after: Object) -> list[Note]:
    """What happened between two states of the same Model."""
    return [
        *_of_versions(before, after),
        *_of_latest(before, after),
        *_of_traffic(before, after),
        *_of_refusals(before, after),
        *_of_rollout(before, after),
    ]


def _of_versions(before: Object, after: Object) -> Iterator[Note]:
    """New lines of the history, and outcomes that changed."""
    former = _lines(before)
    for key, entry in _lines(after).items():
        known = former.get(key)
        called = f"{entry.revision} (version {entry.version})" if entry.version else entry.revision
        if known is None and entry.outcome != "promoted":
            yield Note("Normal", "RevisionCreated", f"{called} was made from {entry.storage_uri}")
        outcome = known.outcome if known is not None else ""
        if outcome == entry.outcome:
            continue
        if entry.outcome == "promoted":
            yield Note("Normal", "Promoted", f"{called} has all the traffic")
        elif entry.outcome == "rolledback":
            yield Note("Warning", "RolledBack", f"{called} was rolled back")
        elif entry.outcome == "failed":
            reason = (condition_of(after, "ConfigurationsReady") or {}).get("message", "")
            yield Note("Warning", "RevisionFailed", f"{called} did not become ready: {reason}")


def _of_latest(before: Object, after: Object) -> Iterator[Note]:
    ready = _status(after).get("latestReadyRevision")
    if ready and ready != _status(before).get("latestReadyRevision"):
        yield Note("Normal", "RevisionReady", f"{ready} is ready")


def _of_traffic(before: Object, after: Object) -> Iterator[Note]:
    former, present = _split(before), _split(after)
    if present and former != present:
        yield Note("Normal", "TrafficChanged", f"traffic is now {present}")


def _of_refusals(before: Object, after: Object) -> Iterator[Note]:
    former, present = (condition_of(obj, "ObjectsApplied") or {} for obj in (before, after))
    if present.get("status") == "False" and former.get("message") != present.get("message"):
        yield Note("Warning", str(present.get("reason", "Refused")), str(present.get("message", "")))


def _of_rollout(before: Object, after: Object) -> Iterator[Note]:
    """Starts, steps, pauses and ends of rollouts."""
    former, present = rollout_of(before), rollout_of(after)
    if present is None:
        return
    if former is None or former.candidate != present.candidate or former.started_at != present.started_at:
        yield Note("Normal", "RolloutStarted", f"{present.candidate} is to follow {present.stable} step by step")
        former = None
    said = words(present.reasons)
    if present.phase != (former.phase if former is not None else "Progressing"):
        bad = present.refuses
        yield Note("Warning" if bad else "Normal", f"Rollout{present.phase}", f"{present.candidate}: {said}")
    elif (held := held_by(present)) is not None and (former is None or held_by(former) is None):
        yield Note("Warning", "RolloutHeld", f"{present.candidate}: {held[1]}")
    elif former is not None and present.percent != former.percent:
        what = f"{present.candidate} gets {present.percent} %: {said}"
        yield Note("Normal", "RolloutProgressed", what)


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
