"""Why a revision that was never ready does not start, as its Pods tell. Pure.

Knative's Revisions do not watch Pods: they look at one when their Deployment or their PodAutoscaler changes
(`pkg/reconciler/revision/reconcile_resources.go`), and a container that crashes over and over changes neither before
the progress deadline. We watch Pods, so the trouble is put into the PodAutoscaler's status: that wakes the Revision,
which then says the reason itself (ContainerHealthy False, ExitCodeN; ResourcesAvailable False, Unschedulable). By row
from the top:

    the scheduler finds no node, for a while          Unschedulable        its message
    a container crashes over and over                 CrashLoopBackOff     what it left as it ended
    a container waits for what does not come          ImagePullBackOff, …  the kubelet's message
    else                                              nothing is wrong yet

It crashes over and over when the kubelet says so, and between two crashes when it was restarted twice or more and ran
for less than `LASTING` both now and before. One end alone may be chance (the model store did not answer), and a node
may be about to become free: neither is told. A Pod that is over (an evicted one lies about until it is collected) is no
replica, and its trouble none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from math import inf

from autoscaler.warmpool.claims.pods import is_active
from clusters.base.objects import Object, condition_of, name_of, parse_timestamp

CRASHES = "CrashLoopBackOff"
UNSCHEDULABLE = "Unschedulable"
NODE_WITHIN = 5.0
"""Seconds in which the scheduler may find a node after all: replicas that end give theirs back."""
PATIENT = frozenset({"", "ContainerCreating", "PodInitializing", CRASHES})
"""Reasons to wait that pass by themselves, or are told as crashes."""
MANY = 2
"""Restarts: the first comes at once, before the second the kubelet backs off."""
LASTING = 600.0
"""s: what runs for so long has started. The kubelet forgets its crashes then, and not `restartCount`."""
LONGEST = 500
"""Characters of a message."""


def find_trouble(pods: Iterable[Object], now: datetime) -> str:
    """`Reason: message` of the first Pod by name with a trouble; empty where there is none."""
    for pod in sorted(pods, key=name_of):
        if is_active(pod):
            for trouble in _troubles(pod, now):
                return trouble[:LONGEST]
    return ""


def seconds_to_trouble(pods: Iterable[Object], now: datetime) -> float | None:
    """Seconds until a Pod without a node is one; None where none is on the way there."""
    left = (NODE_WITHIN - homeless for pod in pods if (homeless := _homeless_for(pod, now)) is not None)
    return min((seconds for seconds in left if seconds > 0.0), default=None)


def _troubles(pod: Object, now: datetime) -> Iterator[str]:
    homeless = _homeless_for(pod, now)
    if homeless is not None and homeless >= NODE_WITHIN:
        yield _told(UNSCHEDULABLE, condition_of(pod, "PodScheduled") or {})
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if not container.get("ready"):
            yield from _of_container(container, now)


def _homeless_for(pod: Object, now: datetime) -> float | None:
    """Seconds for which the scheduler has found no node, or None."""
    said = condition_of(pod, "PodScheduled") or {}
    if said.get("status") != "False" or said.get("reason") != UNSCHEDULABLE or not is_active(pod):
        return None
    return (now - parse_timestamp(said["lastTransitionTime"])).total_seconds()


def _of_container(status: Object, now: datetime) -> Iterator[str]:
    ended = (status.get("lastState") or {}).get("terminated")
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason") or ""
    if ended is not None and (reason == CRASHES or _is_between_crashes(status, ended, now)):
        left = str(ended.get("message") or "").strip()
        yield _told(CRASHES, {"message": f"exit code {ended.get('exitCode')}{', ' if left else ''}{left}"})
    elif reason not in PATIENT:
        yield _told(reason, waiting)


def _is_between_crashes(status: Object, ended: Object, now: datetime) -> bool:
    """Whether the container runs again, or has just ended, after it ended `MANY` times, the last time soon."""
    state = status.get("state") or {}
    runs = (state.get("running") or state.get("terminated") or {}, ended)
    return int(status.get("restartCount") or 0) >= MANY and all(_lasted(run, now) < LASTING for run in runs)


def _lasted(run: Object, now: datetime) -> float:
    """Seconds of a run, up to now when it goes on; endless where its begin is not known."""
    begin, end = run.get("startedAt"), run.get("finishedAt")
    if not begin:
        return inf
    return ((parse_timestamp(end) if end else now) - parse_timestamp(begin)).total_seconds()


def _told(reason: str, said: Object) -> str:
    return f"{reason}: {str(said.get('message') or 'no message').strip()}"
