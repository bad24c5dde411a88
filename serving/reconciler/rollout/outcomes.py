"""Make the CloudEvents for a change of a Model's status: the outcomes of its rollouts and versions. Pure.

    change                                                        event
    a rollout of another version, or a new one of the same        started (and rolledback for one that still ran)
    percent, pause or resume of a running rollout                 progressed
    phase to Promoted, RolledBack or Failed                       promoted, rolledback, failed
    without a rollout: the outcome of a version in the history    promoted, rolledback, failed

So there are events also for a version that gets all the traffic at once, and for one that a user rolls back after its
promotion. A version that gets traffic because another one lost it has no event of its own.
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
    OutboxEntry,
    outbox_of,
)
from serving.reconciler.rollout.state import Phase, RolloutState, moment, rollout_of
from serving.reconciler.rollout.steps import start_reason
from serving.types.annotations import ANNOTATION_TRACEPARENT
from serving.types.model import Cause, HistoryEntry, Model, Outcome, history_of
from serving.types.validation import read_model

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DIGITS: Final = 20
"""Digits of a sequence: microseconds since 1970, with leading zeros so that it can be compared as text."""

END_OF: Final[Mapping[Phase, str]] = {"Promoted": PROMOTED, "RolledBack": ROLLED_BACK, "Failed": FAILED}
"""The event of each end of a rollout."""
PHASE_OF: Final[Mapping[Outcome, Phase]] = {"promoted": "Promoted", "rolledback": "RolledBack", "failed": "Failed"}
"""The phase in which a rollout ends, by the outcome in the history."""
REPORTED_FIELDS: Final = (
    "phase", "stable", "step", "percent", "startedAt", "since", "endedAt", "verdict", "reasons", "passed",
)  # fmt: skip
"""Fields of `status.rollout` in an event; counts are left out."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The content of an event: its type, the version, and the state of its rollout, if it has one."""

    type: str
    revision: str
    state: RolloutState | None = None


def outbox_after(
    model: Model, rollout: RolloutState | None, history: Sequence[HistoryEntry], now: datetime
) -> list[Object]:
    """Return `status.outbox` after a pass: the events that are still to be sent, then those of this pass."""
    waiting = outbox_of(model.object)
    last = max(_last_sequence(model), waiting[-1].sequence if waiting else "")
    new = outcome_events(model, rollout, history, now, after=last)
    return [entry.to_json() for entry in (*waiting, *new)][-MOST_ENTRIES:]


def last_sequence_after(model: Model, outbox: Sequence[Object]) -> str:
    """Return `status.lastSequence` after a pass with this outbox. Later events have larger ones, on any clock."""
    return max(_last_sequence(model), outbox[-1]["sequence"] if outbox else "")


def _last_sequence(model: Model) -> str:
    written = (model.object.get("status") or {}).get("lastSequence", "")
    return written if isinstance(written, str) and written.isdecimal() else ""


def final_entries(obj: Object, now: datetime) -> list[OutboxEntry]:
    """Return the last events of a deleted Model: its outbox, and the end of a rollout that still ran.

    The id of that end is the same in every process: everything except its time follows from the object.
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
) -> list[OutboxEntry]:
    """Return the events of the change from the Model's status to `rollout` and `history`.

    Their sequences are larger than `after`.
    """
    former = rollout_of(model.object)
    happened = [*_of_rollout(former, rollout), *_of_history(history_of(model.object), history, rollout)]
    first = max((now - EPOCH) // timedelta(microseconds=1), int(after or 0) + 1)
    return [_entry(model, history, one, now, first + place) for place, one in enumerate(happened)]


def _of_rollout(former: RolloutState | None, present: RolloutState | None) -> Iterator[_Change]:
    if former is not None and (
        present is None or (former.candidate, former.started_at) != (present.candidate, present.started_at)
    ):
        if former.runs:
            why = f"superseded by {present.candidate}" if present is not None else "its rollout no longer exists"
            ended = replace(former, phase="RolledBack", percent=0, reasons=(why,))
            yield _Change(ROLLED_BACK, former.candidate, ended)
        former = None
    if present is None:
        return
    if former is None:
        reasons = (start_reason(present.candidate, present.stable),)
        former = replace(present, phase="Progressing", percent=0, ended_at="", reasons=reasons)
        yield _Change(STARTED, present.candidate, former)
    if present.phase in END_OF:
        if present.phase != former.phase:
            yield _Change(END_OF[present.phase], present.candidate, present)
    elif (present.percent, present.phase) != (former.percent, former.phase):
        yield _Change(PROGRESSED, present.candidate, present)


def _of_history(
    before: Sequence[HistoryEntry], after: Sequence[HistoryEntry], rollout: RolloutState | None
) -> Iterator[_Change]:
    """Return the ends that no rollout reports; the newest entry of a version has its outcome."""
    known = {entry.revision: entry for entry in before}
    for revision, entry in {entry.revision: entry for entry in after}.items():
        end, former = PHASE_OF.get(entry.outcome), known.get(revision)
        if end is None or entry.cause.by == "rollback":
            continue
        if former is not None and _has_same_end(former, entry):
            continue
        if rollout is None or not _is_reported(rollout, entry, after, end):
            yield _Change(END_OF[end], revision)


def _has_same_end(former: HistoryEntry, entry: HistoryEntry) -> bool:
    """Return whether `former` has the end already; a stable version may be promoted again between two rollouts."""
    if entry.outcome == "promoted":
        return former.promoted_at == entry.promoted_at
    return (former.outcome, former.at) == (entry.outcome, entry.at)


def _is_reported(rollout: RolloutState, entry: HistoryEntry, log: Sequence[HistoryEntry], end: Phase) -> bool:
    """Return whether a rollout reports this end: the present one, or that of an older version never promoted.

    The present rollout reports the first promotion after its end. The traffic may take some passes to get there, and
    the promotion may be in a further entry. Later promotions are not part of the rollout.
    """
    if entry.revision == rollout.candidate:
        since = [one for one in log if one.revision == entry.revision and _is_promoted_since(rollout.ended_at, one)]
        return rollout.phase == end and (not since or (end == "Promoted" and since[0] == entry))
    lines = [one.revision for one in log]
    if rollout.candidate not in lines or entry.promoted_at:
        return False
    return lines.index(entry.revision) < lines.index(rollout.candidate)


def _is_promoted_since(moment: str, entry: HistoryEntry) -> bool:
    """Return whether the version got all the traffic at this time or later; the history has whole seconds."""
    if not entry.promoted_at:
        return False
    return not moment or parse_timestamp(entry.promoted_at) >= parse_timestamp(moment).replace(microsecond=0)


def _entry(model: Model, history: Sequence[HistoryEntry], one: _Change, now: datetime, place: int) -> OutboxEntry:
    line = next((entry for entry in history if entry.revision == one.revision), None)
    cause = line.cause if line is not None else model.cause
    sequence = str(place).zfill(DIGITS)
    caused_by: dict[str, str] = {}
    if cause.by == "event":  # the Model's trace is that of the event that changed it last
        traceparent = annotations_of(model.object).get(ANNOTATION_TRACEPARENT, "") if cause == model.cause else ""
        caused_by = {"causationid": cause.id, "causationsource": cause.source, "traceparent": traceparent}
    return OutboxEntry(
        id=f"{one.revision}/{one.type.split('.')[-2]}/{sequence}",
        type=one.type,
        time=moment(now),
        sequence=sequence,
        subject=one.revision,
        data=_data(model, one, line, cause),
        **caused_by,
    )


def _brief(passed: Sequence[Object]) -> list[Object]:
    """Return the passed steps; of all but the last only the decision, since each had an event with the details."""
    *earlier, last = passed
    return [
        {**one, "verdict": {"decision": one["verdict"]["decision"]}} if "verdict" in one else one for one in earlier
    ] + [last]


def _data(model: Model, one: _Change, line: HistoryEntry | None, cause: Cause) -> dict[str, Any]:
    """Return the version and the state of its rollout, in the fields of `status.rollout`, without empty parts."""
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
        state = one.state.to_json()
        parts |= {name: state[name] for name in REPORTED_FIELDS if name in state}
        parts |= {"passed": _brief(state["passed"])} if "passed" in state else {}
    return {name: value for name, value in parts.items() if value not in (None, "")}
