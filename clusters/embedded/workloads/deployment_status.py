"""Calculate the status of a Deployment: its replica counts and conditions. Pure.

Source: kubernetes `pkg/controller/deployment/{sync,progress}.go` and `util/deployment_util.go`.

    Available       True, MinimumReplicasAvailable, while at most `maxUnavailable` replicas are unavailable
    Progressing     True, NewReplicaSetCreated at first; True, ReplicaSetUpdated after each progress; True,
                    NewReplicaSetAvailable from completion on; False, ProgressDeadlineExceeded, after
                    `progressDeadlineSeconds` without progress
    ReplicaFailure  the condition of the new ReplicaSet
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from clusters.base.objects import Object, generation_of, name_of, parse_timestamp
from clusters.embedded.workloads.status import condition, conditions_by_type, counts, status_of
from clusters.embedded.workloads.template import replicas_of

DEFAULT_DEADLINE = 600  # s; default of progressDeadlineSeconds in Kubernetes
COMPLETE = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"
COUNTED = ("replicas", "readyReplicas", "availableReplicas")


@dataclass(frozen=True, slots=True)
class ObservedDeployment:
    """A Deployment with the ReplicaSet of its current template (`new`) and those of former templates (`old`)."""

    deployment: Object
    new: Object
    old: Sequence[Object]


def calculate_status(observed: ObservedDeployment, now: datetime) -> Object:
    """Return the new status."""
    status = _counts(observed)
    failure = conditions_by_type(observed.new).get("ReplicaFailure")
    conditions = [_available(observed, status, now), _progressing(observed, status, now), failure]
    return {**status, "conditions": [one for one in conditions if one is not None]}


def seconds_to_deadline(status: Object, deployment: Object, now: datetime) -> float | None:
    """Return the seconds after which the progress deadline must be checked, None when no deadline is running."""
    progressing = next((one for one in status["conditions"] if one["type"] == "Progressing"), None)
    if progressing is None or progressing["reason"] in (COMPLETE, TIMED_OUT):
        return None
    return (
        max(0.0, (_deadline(progressing, deployment) - now).total_seconds()) + 1.0
    )  # stored times are in whole seconds


def _counts(observed: ObservedDeployment) -> Object:
    every = [observed.new, *observed.old]
    replicas, ready, available = (sum(int(status_of(one).get(field) or 0) for one in every) for field in COUNTED)
    updated = int(status_of(observed.new).get("replicas") or 0)
    wanted = sum(replicas_of(one) for one in every)
    numbers = counts(
        replicas=replicas,
        updatedReplicas=updated,
        readyReplicas=ready,
        availableReplicas=available,
        unavailableReplicas=max(0, wanted - available),
    )
    return {"observedGeneration": generation_of(observed.deployment), **numbers}


def _available(observed: ObservedDeployment, status: Object, now: datetime) -> Object:
    deployment = observed.deployment
    former = conditions_by_type(deployment).get("Available")
    if status.get("availableReplicas", 0) >= replicas_of(deployment) - _max_unavailable(deployment):
        message = "Deployment has minimum availability."
        return condition(former, "Available", "True", "MinimumReplicasAvailable", message, now, timed=True)
    message = "Deployment does not have minimum availability."
    return condition(former, "Available", "False", "MinimumReplicasUnavailable", message, now, timed=True)


def _progressing(observed: ObservedDeployment, status: Object, now: datetime) -> Object:
    former = conditions_by_type(observed.deployment).get("Progressing")
    name = name_of(observed.new)
    if former is not None and f'"{name}"' not in former.get("message", ""):
        former = None  # it is about another ReplicaSet
    balanced = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    if former is not None and former.get("reason") == COMPLETE and balanced:
        return former
    wanted = replicas_of(observed.deployment)
    if all(status.get(field, 0) == wanted for field in ("updatedReplicas", "replicas", "availableReplicas")):
        message = f'ReplicaSet "{name}" has successfully progressed.'
        return condition(former, "Progressing", "True", COMPLETE, message, now, timed=True)
    if former is None:
        message = f'Created new replica set "{name}"'
        return condition(None, "Progressing", "True", "NewReplicaSetCreated", message, now, timed=True)
    if _has_progressed(observed.deployment, status):
        message = f'ReplicaSet "{name}" is progressing.'
        restarted = {**former, "message": ""}  # renews lastUpdateTime, with which the deadline begins
        return condition(restarted, "Progressing", "True", "ReplicaSetUpdated", message, now, timed=True)
    if now > _deadline(former, observed.deployment):
        message = f'ReplicaSet "{name}" has timed out progressing.'
        return condition(former, "Progressing", "False", TIMED_OUT, message, now, timed=True)
    return former


def _has_progressed(deployment: Object, status: Object) -> bool:
    """Return whether the new status has more new replicas or fewer old ones than the stored status."""
    before = status_of(deployment)

    def has_more(field: str) -> bool:
        return int(status.get(field, 0)) > int(before.get(field) or 0)

    def old_replicas(counts: Object) -> int:
        return int(counts.get("replicas") or 0) - int(counts.get("updatedReplicas") or 0)

    more_new = any(map(has_more, ("updatedReplicas", "readyReplicas", "availableReplicas")))
    return more_new or old_replicas(status) < old_replicas(before)


def _deadline(progressing: Object, deployment: Object) -> datetime:
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    updated = progressing.get("lastUpdateTime") or progressing["lastTransitionTime"]
    return parse_timestamp(updated) + timedelta(seconds=DEFAULT_DEADLINE if seconds is None else int(seconds))


def _max_unavailable(deployment: Object) -> int:
    """Return `maxUnavailable` as a number of replicas. A percentage, by default 25 %, is rounded down."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    allowed = rolling.get("maxUnavailable", "25%")
    if isinstance(allowed, str):
        return replicas_of(deployment) * int(allowed.rstrip("%")) // 100
    return int(allowed)
