"""The cause of a failed start, read from a revision's Pods. Pure.

Knative's Revisions do not watch Pods: they read one when their Deployment or their PodAutoscaler changes
(`pkg/reconciler/revision/reconcile_resources.go`), and a container that crashes repeatedly changes neither before the
progress deadline. We watch Pods and write the failure into the PodAutoscaler's status. That triggers the Revision,
which then reports the reason itself (ContainerHealthy False, ExitCodeN; ResourcesAvailable False, Unschedulable). By
row from the top:

    the scheduler finds no node for a while           Unschedulable        its message
    a container crashes repeatedly                    CrashLoopBackOff     its termination message
    a container waits for a missing object            ImagePullBackOff, …  the kubelet's message
    else                                              no failure yet

A container crashes repeatedly if the kubelet reports it, or, between two crashes, if it was restarted at least twice
and ran for less than `LASTING` both now and before. A single exit may be accidental (the model store did not answer),
and a node may be about to become free, so neither is reported. A finished Pod (an evicted one remains until it is
collected) is not a replica and is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from math import inf

from autoscaler.warmpool.claims.pods import is_active
from clusters.base.objects import DISRUPTION_TARGET, GPU_LOST, Object, condition_of, name_of, parse_timestamp

CRASHES = "CrashLoopBackOff"
"""Reason of a replica whose process ends again and again."""
UNSCHEDULABLE = "Unschedulable"
NODE_WITHIN = 5.0
"""Seconds in which the scheduler may still find a node: terminating replicas free theirs."""
IGNORED_REASONS = frozenset({"", "ContainerCreating", "PodInitializing", CRASHES})
"""Reasons for waiting that pass by themselves, or are reported as crashes."""
MANY = 2
"""Restarts: the first is immediate; before the second, the kubelet backs off."""
LASTING = 600.0
"""Seconds; a container that runs for longer has started. Then the kubelet resets its back-off, but not
`restartCount`.
"""
LONGEST = 500
"""Maximum characters of a message."""


def find_start_failure(pods: Iterable[Object], now: datetime) -> str:
    """Return `Reason: message` of the first failing Pod by name; empty if there is none.

    A Pod fails, too, while it ends because its GPU is lost.
    """
    ordered = sorted(pods, key=name_of)
    for pod in ordered:
        if is_active(pod):
            for failure in _failures(pod, now):
                return failure[:LONGEST]
    lost = (one for pod in ordered if (one := condition_of(pod, DISRUPTION_TARGET) or {}).get("reason") == GPU_LOST)
    return next((_format_failure(GPU_LOST, one)[:LONGEST] for one in lost), "")


def seconds_to_unschedulable(pods: Iterable[Object], now: datetime) -> float | None:
    """Return the seconds until a Pod without a node counts as unschedulable; None without such a Pod."""
    left = (NODE_WITHIN - unscheduled for pod in pods if (unscheduled := _unscheduled_for(pod, now)) is not None)
    return min((seconds for seconds in left if seconds > 0.0), default=None)


def _failures(pod: Object, now: datetime) -> Iterator[str]:
    unscheduled = _unscheduled_for(pod, now)
    if unscheduled is not None and unscheduled >= NODE_WITHIN:
        yield _format_failure(UNSCHEDULABLE, condition_of(pod, "PodScheduled") or {})
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if not container.get("ready"):
            yield from _of_container(container, now)


def _unscheduled_for(pod: Object, now: datetime) -> float | None:
    """Return the seconds for which the scheduler has found no node, or None."""
    condition = condition_of(pod, "PodScheduled") or {}
    if condition.get("status") != "False" or condition.get("reason") != UNSCHEDULABLE or not is_active(pod):
        return None
    return (now - parse_timestamp(condition["lastTransitionTime"])).total_seconds()


def _of_container(status: Object, now: datetime) -> Iterator[str]:
    ended = (status.get("lastState") or {}).get("terminated")
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason") or ""
    state = status.get("state") or {}
    runs = (state.get("running") or state.get("terminated") or {}, ended or {})  # the present one and the last
    between_crashes = int(status.get("restartCount") or 0) >= MANY and all(_lasted(run, now) < LASTING for run in runs)
    if ended is not None and (reason == CRASHES or between_crashes):
        left = str(ended.get("message") or "").strip()
        yield _format_failure(CRASHES, {"message": f"exit code {ended.get('exitCode')}{', ' if left else ''}{left}"})
    elif reason not in IGNORED_REASONS:
        yield _format_failure(reason, waiting)


def _lasted(run: Object, now: datetime) -> float:
    """Return the seconds of a run, up to now if it continues; infinite if its start is unknown."""
    begin, end = run.get("startedAt"), run.get("finishedAt")
    if not begin:
        return inf
    return ((parse_timestamp(end) if end else now) - parse_timestamp(begin)).total_seconds()


def _format_failure(reason: str, condition: Object) -> str:
    return f"{reason}: {str(condition.get('message') or 'no message').strip()}"
