"""Which events a change of a Model's status is worth to the outside: the difference of two statuses. Pure.

    what changed                                                  event
    a rollout of another version, or the same one once more       started (and rolledback for one that still ran)
    percent, or pause and resume, of a rollout that runs          progressed
    phase to Promoted, RolledBack or Failed                       promoted, rolledback, failed
    without a rollout: the outcome of a version in the history    promoted, rolledback, failed

So a version that gets all the traffic at once tells so too, and one that a person takes back after its promotion. What
got the traffic because another lost it is told by the event of that other one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clusters.base.errors import Invalid
from clusters.base.objects import Object, annotations_of, parse_timestamp
from eventing.objects.outbox import (
    FAILED,
    MOST_ENTRIES,
    PROGRESSED,
    PROMOTED,
    ROLLED_BACK,
    STARTED,
    Entry,
    outbox_of,
)
from serving.reconciler.rollout.state import Phase, RolloutState, moment, rollout_of
from serving.types.annotations import ANNOTATION_TRACEPARENT
from serving.types.model import Cause, HistoryEntry, Model, Outcome, history_of
from serving.types.validation import read_model

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DIGITS: Final = 20
"""Of a sequence: microseconds since 1970, wide enough to be compared as text."""

END_OF: Final[Mapping[Phase, str]] = {"Promoted": PROMOTED, "RolledBack": ROLLED_BACK, "Failed": FAILED}
"""The event of each end of a rollout."""
PHASE_OF: Final[Mapping[Outcome, Phase]] = {"promoted": "Promoted", "rolledback": "RolledBack", "failed": "Failed"}
"""The end of a rollout that the history has as this outcome."""
TOLD: Final = (
    "phase", "stable", "step", "percent", "startedAt", "since", "endedAt", "verdict", "reasons", "passed",
)  # fmt: skip
"""What an event tells of `status.rollout`; counts are for the judge."""


@dataclass(frozen=True, slots=True)
class _Happened:
    """What an event is to tell: its type, the version, and where its rollout stands, if it has one."""

    type: str
    revision: str
    state: RolloutState | None = None


def outbox_after(
    model: Model, rollout: RolloutState | None, history: Sequence[HistoryEntry], now: datetime
) -> list[Object]:
    """`status.outbox` after a pass: what is still to be sent, and what happened in this pass, at its end."""
    waiting = outbox_of(model.object)
    last = max(_last_sequence(model), waiting[-1].sequence if waiting else "")
    fresh = outcome_events(model, rollout, history, now, after=last)
    return [entry.to_json() for entry in (*waiting, *fresh)][-MOST_ENTRIES:]


def last_sequence_after(model: Model, outbox: Sequence[Object]) -> str:
    """`status.lastSequence` after a pass that leaves this outbox: the next event comes after it on whatever clock."""
    return max(_last_sequence(model), outbox[-1]["sequence"] if outbox else "")


def _last_sequence(model: Model) -> str:
    written = (model.object.get("status") or {}).get("lastSequence", "")
    return written if isinstance(written, str) and written.isdecimal() else ""


def last_words(obj: Object, now: datetime) -> list[Entry]:
    """What a Model that is gone leaves to be told: its outbox, and the end of a rollout that ran.

    Whoever saw it go gives that end the same id: all but its time follows from the object.
    """
    waiting = outbox_of(obj)
    try:
        model = read_model(obj)
    except Invalid:
        return waiting
    last = max(_last_sequence(model), waiting[-1].sequence if waiting else "")
    ends = _of_rollout(rollout_of(obj), None)
    return [*waiting, *(_entry(model, history_of(obj), one, now, int(last or 0) + 1) for one in ends)]


def outcome_events(
    model: Model, rollout: RolloutState | None, history: Sequence[HistoryEntry], now: datetime, *, after: str = ""
) -> list[Entry]:
    """The events of going from the Model's status to `rollout` and `history`; their sequences come after `after`."""
    former = rollout_of(model.object)
    happened = [*_of_rollout(former, rollout), *_of_history(history_of(model.object), history, rollout)]
    first = max((now - EPOCH) // timedelta(microseconds=1), int(after or 0) + 1)
    return [_entry(model, history, one, now, first + place) for place, one in enumerate(happened)]


def _of_rollout(former: RolloutState | None, present: RolloutState | None) -> Iterator[_Happened]:
    if former is not None and (present is None or not _is_same(former, present)):
        if former.runs:
            why = f"superseded by {present.candidate}" if present is not None else "its rollout is gone"
            ended = replace(former, phase="RolledBack", percent=0, reasons=(why,))
            yield _Happened(ROLLED_BACK, former.candidate, ended)
        former = None
    if present is None:
        return
    if former is None:
        former = replace(present, phase="Progressing", percent=0, ended_at="", reasons=(_start_of(present),))
        yield _Happened(STARTED, present.candidate, former)
    if present.phase in END_OF:
        if present.phase != former.phase:
            yield _Happened(END_OF[present.phase], present.candidate, present)
    elif (present.percent, present.phase) != (former.percent, former.phase):
        yield _Happened(PROGRESSED, present.candidate, present)


def _start_of(state: RolloutState) -> str:
    return f"{state.candidate} is to follow {state.stable}"


def _is_same(one: RolloutState, other: RolloutState) -> bool:
    return (one.candidate, one.started_at) == (other.candidate, other.started_at)


def _of_history(
    before: Sequence[HistoryEntry], after: Sequence[HistoryEntry], rollout: RolloutState | None
) -> Iterator[_Happened]:
    """What no rollout tells; of several lines of a version the newest says how it is."""
    known = {entry.revision: entry for entry in before}
    for revision, entry in {entry.revision: entry for entry in after}.items():
        end, former = PHASE_OF.get(entry.outcome), known.get(revision)
        if end is None or entry.cause.by == "rollback":
            continue
        if former is not None and _is_known(former, entry):
            continue
        if rollout is None or not _is_told(rollout, entry, after, end):
            yield _Happened(END_OF[end], revision)


def _is_known(former: HistoryEntry, entry: HistoryEntry) -> bool:
    """Whether the end was there before; a stable version has all the traffic again between two rollouts."""
    if entry.outcome == "promoted":
        return former.promoted_at == entry.promoted_at
    return (former.outcome, former.at) == (entry.outcome, entry.at)


def _is_told(rollout: RolloutState, entry: HistoryEntry, log: Sequence[HistoryEntry], end: Phase) -> bool:
    """Whether a rollout tells this end: the present one, or that of an older version which never had it all.

    The present one tells the first promotion since its end, which traffic brings about some passes later, maybe in a
    further line; what comes after that promotion is no longer its matter.
    """
    if entry.revision == rollout.candidate:
        since = [one for one in log if one.revision == entry.revision and _is_promoted_since(rollout.ended_at, one)]
        return rollout.phase == end and (not since or (end == "Promoted" and since[0] == entry))
    lines = [one.revision for one in log]
    if rollout.candidate not in lines or entry.promoted_at:
        return False
    return lines.index(entry.revision) < lines.index(rollout.candidate)


def _is_promoted_since(moment: str, entry: HistoryEntry) -> bool:
    """Whether it got all the traffic at this moment or later; the history knows whole seconds."""
    if not entry.promoted_at:
        return False
    return not moment or parse_timestamp(entry.promoted_at) >= parse_timestamp(moment).replace(microsecond=0)


def _entry(model: Model, history: Sequence[HistoryEntry], one: _Happened, now: datetime, place: int) -> Entry:
    line = next((entry for entry in history if entry.revision == one.revision), None)
    cause = line.cause if line is not None else model.cause
    sequence = str(place).zfill(DIGITS)
    return Entry(
        id=f"{one.revision}/{one.type.split('.')[-2]}/{sequence}",
        type=one.type,
        time=moment(now),
        sequence=sequence,
        subject=one.revision,
        data=_data(model, one, line, cause),
        **(_caused_by(model, cause) if cause.by == "event" else {}),
    )


def _brief(passed: Sequence[Object]) -> list[Object]:
    """Of steps before the last one only how they were decided: the event that each was worth told the rest."""
    *earlier, last = passed
    return [
        {**one, "verdict": {"decision": one["verdict"]["decision"]}} if "verdict" in one else one for one in earlier
    ] + [last]


def _caused_by(model: Model, cause: Cause) -> dict[str, str]:
    """The Model's trace is that of the event that changed it last."""
    traceparent = annotations_of(model.object).get(ANNOTATION_TRACEPARENT, "") if cause == model.cause else ""
    return {"causationid": cause.id, "causationsource": cause.source, "traceparent": traceparent}


def _data(model: Model, one: _Happened, line: HistoryEntry | None, cause: Cause) -> dict[str, Any]:
    """The version, and where its rollout stands in the words of `status.rollout`; empty parts are left out."""
    parts: dict[str, Any] = {
        "namespace": model.namespace,
        "model": model.name,
        "revision": one.revision,
        "cause": cause.to_json(),
        "url": (model.object.get("status") or {}).get("url"),
    }
    if line is not None:
        parts |= {"version": line.version, "digest": line.digest, "storageUri": line.storage_uri, "createdAt": line.at}
    if one.state is not None:
        stands = one.state.to_json()
        parts |= {name: stands[name] for name in TOLD if name in stands}
        parts |= {"passed": _brief(stands["passed"])} if "passed" in stands else {}
    return {name: value for name, value in parts.items() if value not in (None, "")}
