"""Compare the digests that the replicas of a revision loaded with the revision's recorded digest. Pure.

    there is no record                     RecordDigest    the digest of a replica, of a ready one if there is one
    the digest is the recorded one         ConfirmDigest   the replica, if it waits for that
    it differs, the replica is ready       RefuseReplica   delete the Pod now: it may have requests
    it differs, the replica waits          RefuseReplica   delete the Pod once new Pods mount the record; until then,
                                                           they might load the same files

A waiting replica has no requests. After each deletion, the revision's next deletion is delayed twice as long as the
previous one, from 10 s to 5 minutes. An hour without deletions resets the delay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from clusters.base.backoff import Backoff

FIRST_BACKOFF: Final = 10.0  # s between the first deletion and the second
LONGEST_BACKOFF: Final = 300.0  # s
_BACKOFF: Final = Backoff(FIRST_BACKOFF, LONGEST_BACKOFF)
FORGOTTEN_AFTER: Final = 3_600.0  # s
_SHOWN: Final = len("sha256:") + 12  # characters of a digest in messages


@dataclass(frozen=True, slots=True)
class ReplicaDigest:
    """A Pod (`namespace/name`) and its digest; `waits`: it becomes ready once the digest is confirmed."""

    pod: str
    digest: str
    ready: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Deletions:
    """The number of deleted Pods of a revision, and the time of the last deletion (monotonic seconds)."""

    count: int = 0
    last: float = -math.inf

    def added(self, now: float) -> Deletions:
        """Return the deletions plus another one."""
        return Deletions((self.count if now - self.last < FORGOTTEN_AFTER else 0) + 1, now)

    def wait(self, now: float) -> float:
        """Return the seconds until the next deletion is allowed."""
        if self.count == 0 or now - self.last >= FORGOTTEN_AFTER:
            return 0.0
        return max(0.0, self.last + _BACKOFF.delay(self.count - 1) - now)


class RefusalReason(StrEnum):
    """Whether a replica with other files is deleted now, or why not yet."""

    DELETED = "the Pod is deleted and a new one starts"
    BACKING_OFF = "the Pod is deleted later, because other Pods of this revision were deleted recently"
    NOT_MOUNTED = "the Pod receives no requests and is deleted once new Pods mount the record"


@dataclass(frozen=True, slots=True)
class RecordDigest:
    """Record this digest for the revision."""

    digest: str


@dataclass(frozen=True, slots=True)
class ConfirmDigest:
    """Let this replica become ready."""

    pod: str


@dataclass(frozen=True, slots=True)
class RefuseReplica:
    """Delete this Pod in `after` seconds; inf if another event comes first."""

    pod: str
    digest: str
    reason: RefusalReason
    after: float = 0.0


DigestAction = RecordDigest | ConfirmDigest | RefuseReplica


def judge(
    replicas: Sequence[ReplicaDigest], record: str, deletions: Deletions, now: float, *, is_mounted: bool
) -> list[DigestAction]:
    """Return the actions for the replicas of one revision.

    `record` is the recorded digest, "" if there is none. `is_mounted`: new Pods of the revision mount it. `now` is in
    monotonic seconds.
    """
    found = sorted((one for one in replicas if one.digest), key=lambda one: (not one.ready, one.pod))
    if not record:
        return [RecordDigest(found[0].digest)] if found else []
    verdicts: list[DigestAction] = [ConfirmDigest(one.pod) for one in found if one.waits and one.digest == record]
    wait = deletions.wait(now)
    for one in found:
        if one.digest == record:
            continue
        if not (one.ready or is_mounted):
            verdicts.append(RefuseReplica(one.pod, one.digest, RefusalReason.NOT_MOUNTED, math.inf))
        elif wait > 0.0:
            verdicts.append(RefuseReplica(one.pod, one.digest, RefusalReason.BACKING_OFF, wait))
        else:
            verdicts.append(RefuseReplica(one.pod, one.digest, RefusalReason.DELETED))
    return verdicts


def message_of(refused: RefuseReplica, revision: str, record: str, model: str) -> str:
    """Return the message for a refused replica, with the remedy; `model` is the name of the revision's Model."""
    return (
        f"Pod {refused.pod.partition('/')[2]} loaded {refused.digest[:_SHOWN]}, but {revision} is recorded with "
        f"{record[:_SHOWN]}: {refused.reason}; put the recorded files back at the storage URI, or make a version of "
        f"the new files with `knodel deploy {model} --version LABEL`"
    )
