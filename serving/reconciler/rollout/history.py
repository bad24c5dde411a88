"""`status.history`: which versions there were, who had all the traffic when, and what became of each. Pure.

The history is a log. A line is appended when a version appears, when an old version gets all the traffic again after
another had it, and when a rollback gave it all; so the lines with `promotedAt` stand in the order in which they had it.
A rollback to a version that has all the traffic since an earlier rollback adds no line.
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
"""Percent of each version, by the revision that stands for it; only what a probe has seen."""


@dataclass(frozen=True, slots=True)
class _Line:
    """What the outcome of an entry depends on."""

    outcome: Outcome
    share: int
    failed: bool | None  # None: nobody knows any more, the Revision is collected
    newer_serves: bool
    anybody_serves: bool


def advance(
    history: Sequence[HistoryEntry],
    versions: Sequence[Version],
    shares: Shares,
    cause: Cause,
    now: str,
    *,
    coming: str = "",
    refused: str = "",
) -> tuple[HistoryEntry, ...]:
    """The history after a look at the world; the same look twice changes nothing.

    `coming` is the version whose rollout runs: to be superseded by it is no rollback. `refused` is the one that a
    rollout took back, maybe before anybody saw its traffic.
    """
    cause = _fresh_cause(history, cause)
    log = [*_with_digests(history, versions), *_newcomers(history, versions, cause, now)]
    log = _promote(log, shares, cause, now)
    return _trimmed(_refused(_judged(log, versions, shares, coming), refused))


def outcome_after(line: _Line) -> Outcome:
    """What becomes of a version; "share" is its percent of the traffic now.

        share   was                  failed  newer has traffic,  becomes
                                             or is coming
        100     any                  any     any                 promoted
        1–99    any                  any     any                 serving
        0       serving, promoted    any     yes                 superseded
        0       serving, promoted    any     no                  rolledback
        0       (nothing), failed    yes     any                 failed
        0       (nothing), failed    no      yes                 superseded
        0       failed               no      no                  (nothing): it recovered
        0       anything else        any     any                 as it was

    While nobody has traffic nothing was decided: rows 3 and 4 need somebody who has some.
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
    """The revision that last had all the traffic."""
    return next((entry.revision for entry in reversed(history) if entry.promoted_at), None)


def rollback_target(history: Sequence[HistoryEntry], shares: Shares) -> HistoryEntry | None:
    """Where `rollback` without `--to` goes.

    If some revision has 100 % now, who had it before it; else (a split or canary is on) who last had it.
    """
    holder = next((revision for revision, share in shares.items() if share >= ALL), None)
    return next((entry for entry in reversed(history) if entry.promoted_at and entry.revision != holder), None)


def _with_digests(history: Sequence[HistoryEntry], versions: Sequence[Version]) -> list[HistoryEntry]:
    """Return the history with the digests that became known once the first replicas had loaded."""
    known = {version.revision: version.digest for version in versions}
    return [entry if entry.digest else replace(entry, digest=known.get(entry.revision, "")) for entry in history]


def _fresh_cause(history: Sequence[HistoryEntry], cause: Cause) -> Cause:
    """A cause with an id counts once: what comes after it, without a new cause, was a user."""
    spent = cause.id and any(entry.cause == cause for entry in history)
    return Cause() if spent else cause


def _newcomers(
    history: Sequence[HistoryEntry], versions: Sequence[Version], cause: Cause, now: str
) -> list[HistoryEntry]:
    """Versions that no line tells of; of a full history's only those after the newest known: it forgot the others.

    A rollback causes a new version only where its target was collected.
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
    """Note who has all the traffic: in its line, or in a new one when another had it since, or for a rollback."""
    holder = next((revision for revision, share in shares.items() if share >= ALL), None)
    lines = [index for index, entry in enumerate(log) if entry.revision == holder]
    if not lines:
        return log
    own = lines[-1]
    others_since = any(entry.promoted_at for entry in log[own + 1 :])
    came_back = _is_rollback_to(cause, log[own].revision)
    if came_back and not others_since and (log[own].outcome, log[own].cause.by) == ("promoted", "rollback"):
        return [*log[:own], replace(log[own], cause=cause), *log[own + 1 :]]  # the same event: its cause is spent
    if others_since or came_back:
        closed = replace(log[own], outcome="superseded") if log[own].outcome in ("serving", "promoted") else log[own]
        again = replace(log[own], cause=cause, outcome="promoted", at=now, promoted_at=now)
        return [*log[:own], closed, *log[own + 1 :], again]
    if log[own].promoted_at:
        return log
    return [*log[:own], replace(log[own], promoted_at=now), *log[own + 1 :]]


def _is_rollback_to(cause: Cause, revision: str) -> bool:
    return cause.by == "rollback" and cause.id.startswith(f"{revision}@")


def _judged(
    log: Sequence[HistoryEntry], versions: Sequence[Version], shares: Shares, coming: str
) -> list[HistoryEntry]:
    """Each version's newest line with its outcome; older lines of the same version are closed.

    Versions are as old as their first lines, but for the last of `versions`: the spec may ask for an old one again.
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
    """A refused version that never had traffic is no less rolled back."""
    lines = [index for index, entry in enumerate(log) if entry.revision == revision]
    if not lines or log[lines[-1]].outcome:
        return log
    return [*log[: lines[-1]], replace(log[lines[-1]], outcome="rolledback"), *log[lines[-1] + 1 :]]


def _trimmed(log: list[HistoryEntry]) -> tuple[HistoryEntry, ...]:
    """The newest lines; the last two that had it all stay, however old, or nobody would know where to roll back."""
    spare = len(log) - MOST_ENTRIES
    if spare <= 0:
        return tuple(log)
    keep = {index for index, entry in enumerate(log) if entry.promoted_at}
    keep = set(sorted(keep)[-2:])
    droppable = [index for index in range(len(log)) if index not in keep][:spare]
    return tuple(entry for index, entry in enumerate(log) if index not in set(droppable))
