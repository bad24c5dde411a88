"""Which Pods of a ReplicaSet go first when it has too many. Pure.

The order of Kubernetes' `ActivePodsWithRanks` (`pkg/controller/controller_utils.go`), earlier rules first:

1. without a node before with one              2. Pending before Unknown before Running
3. not ready before ready                      4. lower `controller.kubernetes.io/pod-deletion-cost` (default 0)
5. ready for a shorter time                    6. more restarts
7. younger; of Pods as old as each other, the one whose name comes first.

Kubernetes' rule on Pods doubled up on a node falls away: there is one node.
"""

from __future__ import annotations

from collections.abc import Iterable

from clusters.base.objects import Object, annotations_of, condition_of, is_deleting, name_of

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"  # e.g. "-100"; an int32, anything else counts as 0
COST_LIMIT = 2**31
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
FINISHED = frozenset({"Succeeded", "Failed"})


def phase_of(pod: Object) -> str:
    """`status.phase`; a Pod that no node has looked at is Pending."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_active(pod: Object) -> bool:
    """Whether the Pod counts as a replica: it neither ended nor is being deleted."""
    return phase_of(pod) not in FINISHED and not is_deleting(pod)


def is_ready(pod: Object) -> bool:
    """Whether the condition Ready is True."""
    condition = condition_of(pod, "Ready")
    return condition is not None and condition.get("status") == "True"


def pods_to_delete(pods: Iterable[Object], number: int) -> list[Object]:
    """The `number` Pods that are worth least, the least first."""
    return sorted(sorted(pods, key=name_of), key=_Worth)[:number]


class _Worth:
    """Sorts Pods; later times are worth less, so times compare the other way round than the rest."""

    __slots__ = ("_rank", "_times")

    def __init__(self, pod: Object) -> None:
        ready = is_ready(pod)
        self._rank = (
            bool(pod["spec"].get("nodeName")),
            PHASES.get(phase_of(pod), PHASES["Unknown"]),
            ready,
            deletion_cost(pod),
        )
        since = str((condition_of(pod, "Ready") or {}).get("lastTransitionTime") or "") if ready else ""
        self._times = (since, -restarts_of(pod), str(pod["metadata"].get("creationTimestamp") or ""))

    def __lt__(self, other: _Worth) -> bool:
        if self._rank != other._rank:
            return self._rank < other._rank
        (since, restarts, created), (their_since, their_restarts, their_created) = self._times, other._times
        if since != their_since:
            return _later(since, their_since)
        if restarts != their_restarts:
            return restarts < their_restarts
        return created != their_created and _later(created, their_created)


def _later(one: str, other: str) -> bool:
    """Whether time `one` is after `other`; no time at all counts as the latest (`afterOrZero`)."""
    return not one or (bool(other) and one > other)


def deletion_cost(pod: Object) -> int:
    """The annotation's value, 0 when absent or not an int32."""
    text = annotations_of(pod).get(DELETION_COST, "0")
    try:
        cost = int(text)
    except ValueError:
        return 0
    return cost if -COST_LIMIT <= cost < COST_LIMIT else 0


def restarts_of(pod: Object) -> int:
    """The largest restart count of its containers."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(status.get("restartCount") or 0) for status in statuses), default=0)
