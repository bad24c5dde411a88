"""Select the Pods to delete when a ReplicaSet has too many. Pure.

The order is that of `ActivePodsWithRanks` of Kubernetes (`pkg/controller/controller_utils.go`). Earlier rules take
precedence, and the Pod named first is deleted first:

1. without a node before with one              2. Pending before Unknown before Running
3. not ready before ready                      4. lower `controller.kubernetes.io/pod-deletion-cost` (default 0)
5. ready for a shorter time                    6. more restarts
7. created later; of Pods created at the same time, the first by name

The rule of Kubernetes about Pods on the same node does not apply, because there is one node.
"""

from __future__ import annotations

from collections.abc import Iterable

from clusters.base.objects import Object, annotations_of, condition_of, is_deleting, name_of

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"  # an int32 such as "-100"; other values count as 0
COST_LIMIT = 2**31
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
FINISHED = frozenset({"Succeeded", "Failed"})


def phase_of(pod: Object) -> str:
    """Return `status.phase`, Pending if it is missing."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_active(pod: Object) -> bool:
    """Return whether the Pod counts as a replica: it has not ended and is not being deleted."""
    return phase_of(pod) not in FINISHED and not is_deleting(pod)


def is_ready(pod: Object) -> bool:
    """Return whether the condition Ready is True."""
    condition = condition_of(pod, "Ready")
    return condition is not None and condition.get("status") == "True"


def pods_to_delete(pods: Iterable[Object], number: int) -> list[Object]:
    """Return the `number` Pods to delete, in order."""
    return sorted(sorted(pods, key=name_of), key=_DeletionRank)[:number]


class _DeletionRank:
    """Sort key of a Pod. Times are compared separately because they sort in descending order."""

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

    def __lt__(self, other: _DeletionRank) -> bool:
        if self._rank != other._rank:
            return self._rank < other._rank
        (since, restarts, created), (other_since, other_restarts, other_created) = self._times, other._times
        if since != other_since:
            return _is_later(since, other_since)
        if restarts != other_restarts:
            return restarts < other_restarts
        return created != other_created and _is_later(created, other_created)


def _is_later(one: str, other: str) -> bool:
    """Return whether time `one` is after `other`. A missing time is the latest (`afterOrZero` of Kubernetes)."""
    return not one or (bool(other) and one > other)


def deletion_cost(pod: Object) -> int:
    """Return the value of the annotation, 0 if it is missing or not an int32."""
    text = annotations_of(pod).get(DELETION_COST, "0")
    try:
        cost = int(text)
    except ValueError:
        return 0
    return cost if -COST_LIMIT <= cost < COST_LIMIT else 0


def restarts_of(pod: Object) -> int:
    """Return the largest restart count of the Pod's containers."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(status.get("restartCount") or 0) for status in statuses), default=0)
