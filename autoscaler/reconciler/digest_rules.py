"""Compare what the replicas of a revision loaded with the revision's record. Pure.

    there is no record                          Record   the digest of a replica, of a ready one if there is one
    the digest is the recorded one              Confirm  the replica, where it waits for that
    it is another one, the replica is ready     Refuse   delete the Pod now: it may have requests
    it is another one, the replica waits        Refuse   delete the Pod once later replicas mount the record; until then
                                                         a new Pod might load the same files

A replica that waits has no requests. After each deletion the next one of the revision waits twice as long as the one
before, from 10 s to 5 minutes; an hour without one starts the count again.
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
class Replica:
    """A Pod (`namespace/name`) and the digest that it reported; `waits`: it becomes ready once that is confirmed."""

    pod: str
    digest: str
    ready: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Deletions:
    """How often Pods of a revision were deleted, and when last (monotonic seconds)."""

    count: int = 0
    last: float = -math.inf

    def added(self, now: float) -> Deletions:
        """Return the deletions with another one."""
        return Deletions((self.count if now - self.last < FORGOTTEN_AFTER else 0) + 1, now)

    def wait(self, now: float) -> float:
        """Return the seconds until the next deletion is allowed."""
        if self.count == 0 or now - self.last >= FORGOTTEN_AFTER:
            return 0.0
        return max(0.0, self.last + _BACKOFF.delay(self.count - 1) - now)


class Reason(StrEnum):
    """Why a replica with other files is deleted now, or is not deleted yet."""

    DELETED = "the Pod is deleted and a new one starts"
    BACKING_OFF = "the Pod is deleted later, since Pods of this revision were deleted shortly before"
    NOT_MOUNTED = "the Pod gets no requests, and is deleted once new Pods mount the record"


@dataclass(frozen=True, slots=True)
class Record:
    """Record this digest for the revision."""

    digest: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Let this replica become ready."""

    pod: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Delete this Pod in `after` seconds; inf where another event comes first."""

    pod: str
    digest: str
    reason: Reason
    after: float = 0.0


Verdict = Record | Confirm | Refuse


def judge(
    replicas: Sequence[Replica], record: str, deletions: Deletions, now: float, *, is_mounted: bool
) -> list[Verdict]:
    """Return what is to be done about the replicas of one revision.

    `record` is the recorded digest, "" where there is none. `is_mounted`: new Pods of the revision mount it. `now` is
    in monotonic seconds.
    """
    found = sorted((one for one in replicas if one.digest), key=lambda one: (not one.ready, one.pod))
    if not record:
        return [Record(found[0].digest)] if found else []
    verdicts: list[Verdict] = [Confirm(one.pod) for one in found if one.waits and one.digest == record]
    wait = deletions.wait(now)
    for one in found:
        if one.digest == record:
            continue
        if not (one.ready or is_mounted):
            verdicts.append(Refuse(one.pod, one.digest, Reason.NOT_MOUNTED, math.inf))
        elif wait > 0.0:
            verdicts.append(Refuse(one.pod, one.digest, Reason.BACKING_OFF, wait))
        else:
            verdicts.append(Refuse(one.pod, one.digest, Reason.DELETED))
    return verdicts


def message_of(refused: Refuse, revision: str, record: str, model: str) -> str:
    """Return what happened and the remedy, for people; `model` is the name of the revision's Model."""
    return (
        f"Pod {refused.pod.partition('/')[2]} loaded {refused.digest[:_SHOWN]}, but {revision} is recorded with "
        f"{record[:_SHOWN]}: {refused.reason}; put the recorded files back at the storage URI, or make a version of "
        f"the new files with `knodel deploy {model} --version LABEL`"
    )
