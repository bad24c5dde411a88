"""The status of a PodAutoscaler, as the Revision needs it from whatever class.

Knative: `pkg/apis/autoscaling/v1alpha1/pa_lifecycle.go` and `computeActiveCondition` in `kpa.go`. `threshold` is the
initial scale until it was reached once, then max(1, lower bound). Active, by row from the top:

    desired 0, or threshold 0     starting so far      False    TimedOut
    desired 0, or threshold 0     else                 False    NoTraffic
    ready < threshold                                  Unknown  Queued
    ready ≥ threshold                                  True

`ScaleTargetInitialized` becomes True when the threshold is met and `serviceName` is known, and stays True: Ready=False
beside a serviceName without it would tell the Revision that its initial scale was never achieved. Ready is False if
one of the three others is, else Unknown if one is, else True.

`MetricsAvailable` is ours: False with reason `MetricsUnavailable` while replicas or activators are not heard, absent
until that was so once. `ReplicasStarted` is ours likewise: False with the reason while a replica does not start, also
beside others that serve. Nothing follows from either but that people see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from clusters.base.objects import Object, condition_of, generation_of, is_true, parse_timestamp, with_condition

ACTIVE = "Active"
INITIALIZED = "ScaleTargetInitialized"
SKS_READY = "SKSReady"
READY = "Ready"
METRICS = "MetricsAvailable"
UNAVAILABLE = "MetricsUnavailable"
STARTED = "ReplicasStarted"
_DEPENDENTS = (ACTIVE, INITIALIZED, SKS_READY)

TIMED_OUT = "TimedOut"
_TEXTS = {
    TIMED_OUT: "The target could not be activated.",
    "NoTraffic": "The target is not receiving traffic.",
    "Queued": "Requests to the target are being buffered as resources are provisioned.",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """Replicas: wished, ready, and how many must be ready to be active."""

    desired: int
    ready: int
    threshold: int


def active_threshold(pod_autoscaler: Object, least: int) -> int:
    """Ready replicas that make it active; `least` is the lower bound of the decision, initial scale included."""
    return max(1, least) if is_initialized(pod_autoscaler) else least


def make_status(
    pod_autoscaler: Object,
    serverless_service: Object | None,
    scale: Scale,
    now: datetime,
    trouble: str = "",
    progress: str = "",
    silence: str = "",
) -> Object:
    """The whole status. `trouble` of a replica that does not start is `Reason: message`; it, or the `progress` of one
    that does, is told by Active until the initial scale was reached once. `silence` says who is not heard, if anybody.
    """
    former = pod_autoscaler.get("status") or {}
    conditions = list(former.get("conditions") or ())
    sks_status = (serverless_service or {}).get("status") or {}
    service = sks_status.get("serviceName") or former.get("serviceName")
    private = sks_status.get("privateServiceName") or former.get("metricsServiceName")
    initialized = is_initialized(pod_autoscaler) or (bool(service) and scale.ready >= scale.threshold)
    conditions = with_condition(conditions, INITIALIZED, "True" if initialized else "Unknown", now)
    conditions = with_condition(conditions, ACTIVE, *_active(pod_autoscaler, scale, now, trouble or progress))
    conditions = with_condition(conditions, SKS_READY, *_sks_ready(serverless_service, now))
    conditions = with_condition(conditions, READY, *_ready(conditions, now))
    told = {condition["type"] for condition in conditions}
    if silence or METRICS in told:
        conditions = with_condition(conditions, METRICS, *_heard(silence, now))
    if trouble or STARTED in told:
        conditions = with_condition(conditions, STARTED, *_started(trouble, now))
    status: Object = {
        "conditions": conditions,
        "desiredScale": scale.desired,
        "actualScale": scale.ready,
        "observedGeneration": generation_of(pod_autoscaler),
    }
    names = {"serviceName": service, "metricsServiceName": private}
    return status | {name: value for name, value in names.items() if value}


def news_in(pod_autoscaler: Object) -> str:
    """What a status of ours tells of replicas that start; empty where that is nothing."""
    active = condition_of(pod_autoscaler, ACTIVE) or {}
    message = str(active.get("message") or "")
    return message.removeprefix(_TEXTS["Queued"]).strip() if active.get("reason") == "Queued" else ""


def trouble_in(pod_autoscaler: Object) -> tuple[str, str]:
    """Reason and message of what a status of ours tells of a replica that does not start; both empty without one."""
    started = condition_of(pod_autoscaler, STARTED) or {}
    return (str(started.get("reason") or ""), str(started.get("message") or ""))


def is_reported(pod_autoscaler: Object, status: Object) -> bool:
    """Whether this is its status; Knative's webhook adds names that are not known yet, as empty ones."""
    return {key: value for key, value in (pod_autoscaler.get("status") or {}).items() if value != ""} == status


def is_initialized(pod_autoscaler: Object) -> bool:
    """Whether the initial scale was reached once."""
    condition = condition_of(pod_autoscaler, INITIALIZED)
    return condition is not None and condition["status"] == "True"


def has_timed_out(pod_autoscaler: Object) -> bool:
    """Whether it was given up after its progress deadline."""
    condition = condition_of(pod_autoscaler, ACTIVE)
    return condition is not None and condition["status"] == "False" and condition.get("reason") == TIMED_OUT


def starting_for(pod_autoscaler: Object, now: datetime) -> float | None:
    """Seconds that it has been starting (Active Unknown), or None."""
    condition = condition_of(pod_autoscaler, ACTIVE)
    if condition is None or condition["status"] != "Unknown":
        return None
    return (now - parse_timestamp(condition["lastTransitionTime"])).total_seconds()


def _active(pod_autoscaler: Object, scale: Scale, now: datetime, news: str) -> tuple[str, datetime, str, str]:
    if scale.desired == 0 or scale.threshold == 0:
        starting = starting_for(pod_autoscaler, now) is not None or has_timed_out(pod_autoscaler)
        reason = TIMED_OUT if starting and scale.threshold > 0 else "NoTraffic"
        return "False", now, reason, _TEXTS[reason]
    if scale.ready < scale.threshold:
        told = news and not is_initialized(pod_autoscaler)
        return "Unknown", now, "Queued", f"{_TEXTS['Queued']} {news}" if told else _TEXTS["Queued"]
    return "True", now, "", ""


def _sks_ready(serverless_service: Object | None, now: datetime) -> tuple[str, datetime, str, str]:
    if serverless_service is not None and is_true(serverless_service, READY):
        return "True", now, "", ""
    condition = condition_of(serverless_service, READY) if serverless_service is not None else None
    return "Unknown", now, "NotReady", (condition or {}).get("message", "")


def _heard(silence: str, now: datetime) -> tuple[str, datetime, str, str]:
    return ("False", now, UNAVAILABLE, silence) if silence else ("True", now, "", "")


def _started(trouble: str, now: datetime) -> tuple[str, datetime, str, str]:
    reason, _, message = trouble.partition(": ")
    return "False" if trouble else "True", now, reason, message


def _ready(conditions: list[Object], now: datetime) -> tuple[str, datetime, str, str]:
    dependents = [condition for condition in conditions if condition["type"] in _DEPENDENTS]
    for status in ("False", "Unknown"):
        for condition in dependents:
            if condition["status"] == status:
                return status, now, condition.get("reason", ""), condition.get("message", "")
    return "True", now, "", ""
