"""What a Deployment says of itself: its counts, and whether it is available, progressing or failing. Pure.

Source: kubernetes `pkg/controller/deployment/{sync,progress}.go` and `util/deployment_util.go`.

    Available    True MinimumReplicasAvailable while no more replicas are missing than `maxUnavailable` allows
    Progressing  True NewReplicaSetCreated, then ReplicaSetUpdated with each step forward, then NewReplicaSetAvailable
                 once complete, which stays; False ProgressDeadlineExceeded when no step came for
                 `progressDeadlineSeconds`
    ReplicaFailure  as the ReplicaSet says
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from clusters.base.objects import Object, generation_of, name_of, parse_timestamp
from clusters.embedded.workloads.status import condition, conditions_by_type, counts, status_of
from clusters.embedded.workloads.template import replicas_of

DEFAULT_DEADLINE = 600  # s, Kubernetes' default of progressDeadlineSeconds
COMPLETE = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"
COUNTED = ("replicas", "readyReplicas", "availableReplicas")


@dataclass(frozen=True, slots=True)
class View:
    """What a pass saw: the Deployment, the ReplicaSet of its template, the others."""

    deployment: Object
    current: Object
    others: Sequence[Object]


def next_status(view: View, now: datetime) -> Object:
    """The status after this pass."""
    status = _counts(view)
    conditions = [_available(view, status, now), _progressing(view, status, now), _failing(view)]
    return {**status, "conditions": [one for one in conditions if one is not None]}


def seconds_to_deadline(status: Object, deployment: Object, now: datetime) -> float | None:
    """When to look again for a deadline that no event announces; None when none is running."""
    progressing = next((one for one in status["conditions"] if one["type"] == "Progressing"), None)
    if progressing is None or progressing["reason"] in (COMPLETE, TIMED_OUT):
        return None
    return max(0.0, (_deadline(progressing, deployment) - now).total_seconds()) + 1.0  # stored times have whole seconds


def _counts(view: View) -> Object:
    every = [view.current, *view.others]
    replicas, ready, available = (sum(int(status_of(one).get(field) or 0) for one in every) for field in COUNTED)
    updated = int(status_of(view.current).get("replicas") or 0)
    wanted = sum(replicas_of(one) for one in every)
    numbers = counts(
        replicas=replicas,
        updatedReplicas=updated,
        readyReplicas=ready,
        availableReplicas=available,
        unavailableReplicas=max(0, wanted - available),
    )
    return {"observedGeneration": generation_of(view.deployment), **numbers}


def _available(view: View, status: Object, now: datetime) -> Object:
    former = conditions_by_type(view.deployment).get("Available")
    enough = status.get("availableReplicas", 0) >= replicas_of(view.deployment) - _max_unavailable(view.deployment)
    if enough:
        message = "Deployment has minimum availability."
        return condition(former, "Available", "True", "MinimumReplicasAvailable", message, now, timed=True)
    message = "Deployment does not have minimum availability."
    return condition(former, "Available", "False", "MinimumReplicasUnavailable", message, now, timed=True)


def _progressing(view: View, status: Object, now: datetime) -> Object:
    former = conditions_by_type(view.deployment).get("Progressing")
    name = name_of(view.current)
    if former is not None and f'"{name}"' not in former.get("message", ""):
        former = None  # it speaks of another ReplicaSet
    balanced = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    if former is not None and former.get("reason") == COMPLETE and balanced:
        return former
    if _complete(view, status):
        message = f'ReplicaSet "{name}" has successfully progressed.'
        return condition(former, "Progressing", "True", COMPLETE, message, now, timed=True)
    if former is None:
        message = f'Created new replica set "{name}"'
        return condition(None, "Progressing", "True", "NewReplicaSetCreated", message, now, timed=True)
    if _stepped(view, status):
        message = f'ReplicaSet "{name}" is progressing.'
        restarted = {**former, "message": ""}  # each step moves lastUpdateTime, from which the deadline counts
        return condition(restarted, "Progressing", "True", "ReplicaSetUpdated", message, now, timed=True)
    if now > _deadline(former, view.deployment):
        message = f'ReplicaSet "{name}" has timed out progressing.'
        return condition(former, "Progressing", "False", TIMED_OUT, message, now, timed=True)
    return former


def _complete(view: View, status: Object) -> bool:
    wanted = replicas_of(view.deployment)
    return all(status.get(field, 0) == wanted for field in ("updatedReplicas", "replicas", "availableReplicas"))


def _stepped(view: View, status: Object) -> bool:
    before = status_of(view.deployment)

    def gained(field: str) -> bool:
        return int(status.get(field, 0)) > int(before.get(field) or 0)

    def olds(counts: Object) -> int:
        return int(counts.get("replicas") or 0) - int(counts.get("updatedReplicas") or 0)

    return any(map(gained, ("updatedReplicas", "readyReplicas", "availableReplicas"))) or olds(status) < olds(before)


def _failing(view: View) -> Object | None:
    return conditions_by_type(view.current).get("ReplicaFailure")


def _deadline(progressing: Object, deployment: Object) -> datetime:
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    moment = progressing.get("lastUpdateTime") or progressing["lastTransitionTime"]
    return parse_timestamp(moment) + timedelta(seconds=DEFAULT_DEADLINE if seconds is None else int(seconds))


def _max_unavailable(deployment: Object) -> int:
    """A number, or a percentage rounded down; 25 % by default, which of few replicas is none."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    allowed = rolling.get("maxUnavailable", "25%")
    if isinstance(allowed, str):
        return replicas_of(deployment) * int(allowed.rstrip("%")) // 100
    return int(allowed)
