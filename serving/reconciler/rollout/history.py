"""Maintain `status.history`: the versions of a Model, when each had all the traffic, and their outcomes. Pure.

The history is a log. An entry is appended when a version appears, when an old version gets all the traffic again after
another one had it, and when a rollback gives a version all the traffic. So entries with `promotedAt` are in the order
in which the versions had all the traffic. A rollback to a version that has all the traffic since an earlier rollback
adds no entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from serving.reconciler.rollout.versions import Version
from serving.types.model import Cause, HistoryEntry, Outcome

MOST_ENTRIES = 50
ALL = 100
"""Percent."""

Shares = Mapping[str, int]
"""Percent of each version as observed at the gateway, by the revision that identifies the version."""


@dataclass(frozen=True, slots=True)
class _Line:
    """The inputs of `outcome_after`."""

    outcome: Outcome
    share: int
    failed: bool | None  # None: unknown, since Knative collected the Revision
    newer_serves: bool
    anybody_serves: bool


def advance_history(
    history: Sequence[HistoryEntry],
    versions: Sequence[Version],
    shares: Shares,
    cause: Cause,
    now: str,
    *,
    coming: str = "",
    refused: str = "",
) -> tuple[HistoryEntry, ...]:
    """Return the history after a pass. A second pass with the same arguments changes nothing.

    `coming` is the candidate of a running rollout: a version that it replaces is superseded, not rolled back. `refused`
    is the version that a rollout rejected, possibly before its traffic was observed.
    """
    if cause.id and any(entry.cause == cause for entry in history):
        cause = Cause()  # a cause with an id counts once: later changes without a new cause are a user's
    digests = {version.revision: version.digest for version in versions}  # known after the first replicas loaded
    known = [entry if entry.digest else replace(entry, digest=digests.get(entry.revision, "")) for entry in history]
    log = _promote([*known, *_newcomers(history, versions, cause, now)], shares, cause, now)
    return _trimmed(_refused(_with_outcomes(log, versions, shares, coming), refused))


def outcome_after(line: _Line) -> Outcome:
    """Return the outcome of a version; "share" is its present percent of the traffic.

        share   was                  failed  newer has traffic,  becomes
                                             or is a candidate
        100     any                  any     any                 promoted
        1–99    any                  any     any                 serving
        0       serving, promoted    any     yes                 superseded
        0       serving, promoted    any     no                  rolledback
        0       (nothing), failed    yes     any                 failed
        0       (nothing), failed    no      yes                 superseded
        0       failed               no      no                  (nothing): it recovered
        0       anything else        any     any                 unchanged

    While no version has traffic, no outcome is decided: rows 3 and 4 require that some version has traffic.
    """
    if line.share >= ALL:
        return "promoted"
    if line.share > 0:
        return "serving"
    if line.outcome in ("serving", "promoted") and line.anybody_serves:
        return "superseded" if line.newer_serves else "rolledback"
    if line.outcome in ("", "failed") and line.failed is not None:
        return "failed" if line.failed else "superseded" if line.newer_serves else ""
    return line.outcome


def stable_of(history: Sequence[HistoryEntry]) -> str | None:
    """Return the revision that last had all the traffic."""
    return next((entry.revision for entry in reversed(history) if entry.promoted_at), None)


def rollback_target(history: Sequence[HistoryEntry], shares: Shares) -> HistoryEntry | None:
    """Return the entry to which `rollback` without `--to` returns.

    If a revision has 100 % now, this is the one that had it before; else (with a split or canary) the last one.
    """
    holder = next((revision for revision, share in shares.items() if share >= ALL), None)
    return next((entry for entry in reversed(history) if entry.promoted_at and entry.revision != holder), None)


def _newcomers(
    history: Sequence[HistoryEntry], versions: Sequence[Version], cause: Cause, now: str
) -> list[HistoryEntry]:
    """Return entries for new versions. With a full history, versions older than the newest known one are not new.

    A rollback causes a new version only when Knative had collected its target.
    """
    known = {entry.revision for entry in history}
    if any(version.complete and _is_rollback_to(cause, version.revision) for version in versions):
        cause = Cause()
    if len(history) >= MOST_ENTRIES:
        newest = max((index for index, version in enumerate(versions) if version.revision in known), default=-1)
        versions = versions[newest + 1 :]
    return [
        HistoryEntry(version.revision, version.version, version.digest, version.storage_uri, cause, "", now, "")
        for version in versions
        if version.complete and version.revision not in known
    ]


def _promote(log: list[HistoryEntry], shares: Shares, cause: Cause, now: str) -> list[HistoryEntry]:
    """Record the version with all the traffic: in its entry, or in a new one after another version or a rollback."""
    holder = next((revision for revision, share in shares.items() if share >= ALL), None)
    lines = [index for index, entry in enumerate(log) if entry.revision == holder]
    if not lines:
        return log
    own = lines[-1]
    others_since = any(entry.promoted_at for entry in log[own + 1 :])
    came_back = _is_rollback_to(cause, log[own].revision)
    if came_back and not others_since and (log[own].outcome, log[own].cause.by) == ("promoted", "rollback"):
        return [*log[:own], replace(log[own], cause=cause), *log[own + 1 :]]  # the same rollback again
    if others_since or came_back:
        closed = replace(log[own], outcome="superseded") if log[own].outcome in ("serving", "promoted") else log[own]
        again = replace(log[own], cause=cause, outcome="promoted", at=now, promoted_at=now)
        return [*log[:own], closed, *log[own + 1 :], again]
    if log[own].promoted_at:
        return log
    return [*log[:own], replace(log[own], promoted_at=now), *log[own + 1 :]]


def _is_rollback_to(cause: Cause, revision: str) -> bool:
    return cause.by == "rollback" and cause.id.startswith(f"{revision}@")


def _with_outcomes(
    log: Sequence[HistoryEntry], versions: Sequence[Version], shares: Shares, coming: str
) -> list[HistoryEntry]:
    """Return the log with the outcome in each version's newest entry; its older entries are final.

    Versions are ordered by their first entries, except the last of `versions`, which counts as the newest: the spec may
    return to an old version.
    """
    first = {entry.revision: index for index, entry in reversed(list(enumerate(log)))}
    newest = {entry.revision: index for index, entry in enumerate(log)}
    rank = {**first, **{version.revision: len(log) for version in versions[-1:]}}
    failed = {version.revision: version.failure is not None for version in versions}
    serving = [rank[revision] for revision, share in shares.items() if share > 0 and revision in first]
    newer = [*serving, *([rank[coming]] if coming in rank else ())]
    judged = []
    for index, entry in enumerate(log):
        line = _Line(
            outcome=entry.outcome,
            share=shares.get(entry.revision, 0),
            failed=failed.get(entry.revision),
            newer_serves=any(other > rank[entry.revision] for other in newer),
            anybody_serves=bool(serving),
        )
        judged.append(replace(entry, outcome=outcome_after(line)) if newest[entry.revision] == index else entry)
    return judged


def _refused(log: list[HistoryEntry], revision: str) -> list[HistoryEntry]:
    """Return the log with the outcome rolledback for a rejected version, also when it never had traffic."""
    lines = [index for index, entry in enumerate(log) if entry.revision == revision]
    if not lines or log[lines[-1]].outcome:
        return log
    return [*log[: lines[-1]], replace(log[lines[-1]], outcome="rolledback"), *log[lines[-1] + 1 :]]


def _trimmed(log: list[HistoryEntry]) -> tuple[HistoryEntry, ...]:
    """Return the newest entries. The last two with all the traffic are kept at any age, as targets of a rollback."""
    spare = len(log) - MOST_ENTRIES
    if spare <= 0:
        return tuple(log)
    keep = {index for index, entry in enumerate(log) if entry.promoted_at}
    keep = set(sorted(keep)[-2:])
    droppable = [index for index in range(len(log)) if index not in keep][:spare]
    return tuple(entry for index, entry in enumerate(log) if index not in set(droppable))
