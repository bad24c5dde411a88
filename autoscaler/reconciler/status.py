"""The status of a PodAutoscaler, as the Revision requires it of every class.

Knative: `pkg/apis/autoscaling/v1alpha1/pa_lifecycle.go` and `computeActiveCondition` in `kpa.go`. `threshold` is the
initial scale until it was reached once, then max(1, lower bound). Active, by row from the top:

    it waits for GPUs, and ready < max(1, threshold)   Unknown  WaitingForGPU
    desired 0, or threshold 0     starting so far      False    TimedOut
    desired 0, or threshold 0     else                 False    NoTraffic
    ready < threshold                                  Unknown  Queued
    ready ≥ threshold                                  True

`ScaleTargetInitialized` becomes True when the threshold is met and `serviceName` is known, and stays True. With a
serviceName and Ready=False but without it, the Revision would conclude that its initial scale was never achieved. Ready
is False if one of the three others is, else Unknown if one is, else True.

A revision that waits for GPUs does not start, so it does not time out: its progress deadline begins when the wait ends.

Three conditions are Knodel's own and only inform users. `MetricsAvailable` is False with reason `MetricsUnavailable`
while replicas or activators do not answer, and absent until that happened once. `ReplicasStarted` is False with a
reason while a replica fails to start, even if others serve, and absent likewise. `AdaptersReady` is whether the
replicas of a language model serve the adapters of its list (`adapters.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from clusters.base.objects import Object, condition_of, generation_of, is_true, parse_timestamp, with_condition

ACTIVE = "Active"
INITIALIZED = "ScaleTargetInitialized"
SKS_READY = "SKSReady"
READY = "Ready"
METRICS = "MetricsAvailable"
UNAVAILABLE = "MetricsUnavailable"
STARTED = "ReplicasStarted"
ADAPTERS = "AdaptersReady"
_DEPENDENTS = (ACTIVE, INITIALIZED, SKS_READY)

TIMED_OUT = "TimedOut"
WAITING_FOR_GPU = "WaitingForGPU"
"""Reason of Active and ReplicasStarted while others hold the GPUs. The message says who."""
_TEXTS = {
    TIMED_OUT: "The target could not be activated.",
    "NoTraffic": "The target is not receiving traffic.",
    "Queued": "Requests to the target are being buffered as resources are provisioned.",
}


class ReplicaState(NamedTuple):
    """Status, reason and message of a condition about replicas."""

    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """Replicas: desired, ready, and the number that must be ready to be active."""

    desired: int
    ready: int
    threshold: int


def active_threshold(pod_autoscaler: Object, least: int) -> int:
    """Return the ready replicas that make it active; `least` is the decision's lower bound, including the initial
    scale.
    """
    return max(1, least) if is_initialized(pod_autoscaler) else least


def make_status(
    pod_autoscaler: Object,
    serverless_service: Object | None,
    scale: Scale,
    now: datetime,
    failure: str = "",
    progress: str = "",
    unavailable: str = "",
    adapters: ReplicaState | None = None,
) -> Object:
    """Return the whole status.

    `failure`, of a replica that fails to start, is `Reason: message`. Active reports it, or else the `progress` of a
    starting replica, until the initial scale was reached once. `unavailable` is the message about missing metrics, if
    any. `adapters` is the state of adapters; None leaves its condition as it is.
    """
    former = pod_autoscaler.get("status") or {}
    conditions = list(former.get("conditions") or ())
    sks_status = (serverless_service or {}).get("status") or {}
    service = sks_status.get("serviceName") or former.get("serviceName")
    private = sks_status.get("privateServiceName") or former.get("metricsServiceName")
    initialized = is_initialized(pod_autoscaler) or (bool(service) and scale.ready >= scale.threshold)
    conditions = with_condition(conditions, INITIALIZED, "True" if initialized else "Unknown", now)
    active = _active(pod_autoscaler, scale, now, failure or progress)
    if is_waiting_for_gpu(pod_autoscaler) and active[2] != WAITING_FOR_GPU:  # it starts now, so a new transition time
        conditions = [one for one in conditions if one["type"] != ACTIVE]
    conditions = with_condition(conditions, ACTIVE, *active)
    sks_ready = ("Unknown", now, "NotReady", "")
    if serverless_service is not None and is_true(serverless_service, READY):
        sks_ready = ("True", now, "", "")
    elif serverless_service is not None:
        message = (condition_of(serverless_service, READY) or {}).get("message", "")
        sks_ready = ("Unknown", now, "NotReady", message)
    conditions = with_condition(conditions, SKS_READY, *sks_ready)
    conditions = with_condition(conditions, READY, *_ready(conditions, now))
    present = {condition["type"] for condition in conditions}
    if unavailable or METRICS in present:
        metrics = ("False", now, UNAVAILABLE, unavailable) if unavailable else ("True", now, "", "")
        conditions = with_condition(conditions, METRICS, *metrics)
    if failure or STARTED in present:
        reason, _, message = failure.partition(": ")
        conditions = with_condition(conditions, STARTED, "False" if failure else "True", now, reason, message)
    if adapters is not None:
        conditions = with_condition(conditions, ADAPTERS, adapters.status, now, adapters.reason, adapters.message)
    status: Object = {
        "conditions": conditions,
        "desiredScale": scale.desired,
        "actualScale": scale.ready,
        "observedGeneration": generation_of(pod_autoscaler),
    }
    names = {"serviceName": service, "metricsServiceName": private}
    return status | {name: value for name, value in names.items() if value}


def start_progress_of(pod_autoscaler: Object) -> str:
    """Return the progress of starting replicas in a status of ours; empty without any."""
    active = condition_of(pod_autoscaler, ACTIVE) or {}
    message = str(active.get("message") or "")
    return message.removeprefix(_TEXTS["Queued"]).strip() if active.get("reason") == "Queued" else ""


def start_failure_of(pod_autoscaler: Object) -> tuple[str, str]:
    """Return reason and message of a failed start in a status of ours; both empty without one."""
    started = condition_of(pod_autoscaler, STARTED) or {}
    return (str(started.get("reason") or ""), str(started.get("message") or ""))


def adapters_condition_of(pod_autoscaler: Object) -> Object | None:
    """Return the condition about adapters in a status of ours; None without one."""
    return condition_of(pod_autoscaler, ADAPTERS)


def is_reported(pod_autoscaler: Object, status: Object) -> bool:
    """Return whether the status is up to date. Knative's webhook adds unknown names as empty ones, which are
    ignored.
    """
    return {key: value for key, value in (pod_autoscaler.get("status") or {}).items() if value != ""} == status


def is_initialized(pod_autoscaler: Object) -> bool:
    """Return whether the initial scale was reached once."""
    condition = condition_of(pod_autoscaler, INITIALIZED)
    return condition is not None and condition["status"] == "True"


def has_timed_out(pod_autoscaler: Object) -> bool:
    """Return whether it was given up after its progress deadline."""
    condition = condition_of(pod_autoscaler, ACTIVE)
    return condition is not None and condition["status"] == "False" and condition.get("reason") == TIMED_OUT


def starting_for(pod_autoscaler: Object, now: datetime) -> float | None:
    """Return the seconds for which it has been starting (Active Unknown, and not waiting for GPUs), or None."""
    condition = condition_of(pod_autoscaler, ACTIVE)
    if condition is None or condition["status"] != "Unknown" or condition.get("reason") == WAITING_FOR_GPU:
        return None
    return (now - parse_timestamp(condition["lastTransitionTime"])).total_seconds()


def is_waiting_for_gpu(pod_autoscaler: Object) -> bool:
    """Return whether it has too few ready replicas, because others hold the GPUs."""
    return (condition_of(pod_autoscaler, ACTIVE) or {}).get("reason") == WAITING_FOR_GPU


def _active(pod_autoscaler: Object, scale: Scale, now: datetime, text: str) -> tuple[str, datetime, str, str]:
    if text.startswith(WAITING_FOR_GPU) and scale.ready < max(1, scale.threshold):
        return "Unknown", now, WAITING_FOR_GPU, text.removeprefix(WAITING_FOR_GPU).removeprefix(": ")
    if scale.desired == 0 or scale.threshold == 0:
        starting = starting_for(pod_autoscaler, now) is not None or has_timed_out(pod_autoscaler)
        reason = TIMED_OUT if starting and scale.threshold > 0 else "NoTraffic"
        return "False", now, reason, _TEXTS[reason]
    if scale.ready < scale.threshold:
        shown = text and not is_initialized(pod_autoscaler)
        return "Unknown", now, "Queued", f"{_TEXTS['Queued']} {text}" if shown else _TEXTS["Queued"]
    return "True", now, "", ""


def _ready(conditions: list[Object], now: datetime) -> tuple[str, datetime, str, str]:
    dependents = [condition for condition in conditions if condition["type"] in _DEPENDENTS]
    for status in ("False", "Unknown"):
        for condition in dependents:
            if condition["status"] == status:
                return status, now, condition.get("reason", ""), condition.get("message", "")
    return "True", now, "", ""
