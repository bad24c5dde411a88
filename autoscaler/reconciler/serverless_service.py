"""The ServerlessService of a PodAutoscaler, which every autoscaler class must create, and its mode.

Knative: `pkg/reconciler/autoscaling/kpa/kpa.go` (mode), `…/resources/sks.go` (object). `Proxy` puts the activator in
the path, `Serve` sends requests directly to the replicas.

    desired 0                                    Proxy   the activator must hold requests
    no replica ready                             Proxy
    burst capacity -1                            Proxy   as configured
    free slots below the target burst capacity   Proxy   the activator spreads bursts
    requests are queued at the activator         Proxy   they are served before new ones
    else                                         Serve
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.types import ALWAYS_PROXY
from clusters.base.objects import (
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    Object,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
)

LEAST_ACTIVATORS = 2  # of all that run; Knative's minimum per revision
ACTIVATOR_CAPACITY = 100.0  # concurrent requests of one activator: `activator-capacity` of config-autoscaler


class ServiceMode(StrEnum):
    """The destination of the revision's requests."""

    PROXY = "Proxy"
    SERVE = "Serve"


@dataclass(frozen=True, slots=True)
class ModeInputs:
    """The inputs of the mode: replicas, and slots of work."""

    desired: int
    ready: int
    queued: int
    work: float
    slots: float  # of one replica
    burst_capacity: float


def wanted_mode(inputs: ModeInputs) -> ServiceMode:
    """Return the mode by the table above."""
    free = inputs.ready * inputs.slots - inputs.work
    short = inputs.burst_capacity > 0 and free < inputs.burst_capacity
    always = inputs.burst_capacity == ALWAYS_PROXY
    proxied = inputs.desired == 0 or inputs.ready == 0 or inputs.queued > 0 or short or always
    return ServiceMode.PROXY if proxied else ServiceMode.SERVE


def wanted_activators(ready: int, slots: float, burst_capacity: float) -> int:
    """Return the activators needed for the ready replicas and a burst. Knative: `computeNumActivators` in `kpa.go`."""
    if burst_capacity == 0.0:
        return LEAST_ACTIVATORS
    held = ready * slots + max(burst_capacity, 0.0)
    return max(LEAST_ACTIVATORS, math.ceil(held / ACTIVATOR_CAPACITY))


def make_serverless_service(pod_autoscaler: Object, mode: ServiceMode, activators: int = LEAST_ACTIVATORS) -> Object:
    """Return the ServerlessService of this PodAutoscaler."""
    spec = pod_autoscaler["spec"]
    return {
        "apiVersion": SERVERLESS_SERVICE.api_version,
        "kind": SERVERLESS_SERVICE.kind,
        "metadata": {
            "name": name_of(pod_autoscaler),
            "namespace": namespace_of(pod_autoscaler),
            "labels": dict(labels_of(pod_autoscaler)),
            "ownerReferences": [owner_reference(POD_AUTOSCALER, pod_autoscaler)],
        },
        "spec": {
            "mode": mode.value,
            "numActivators": activators,
            "objectRef": dict(spec["scaleTargetRef"]),
            "protocolType": spec.get("protocolType", "http1"),
        },
    }


def changed_fields(present: Object, wanted: Object) -> Object:
    """Return a merge patch from `present` to `wanted`; empty if they are equal."""
    patch: Object = {}
    if differing := {key: value for key, value in wanted["spec"].items() if present["spec"].get(key) != value}:
        patch["spec"] = differing
    labels = labels_of(present)
    if missing := {key: value for key, value in wanted["metadata"]["labels"].items() if labels.get(key) != value}:
        patch["metadata"] = {"labels": missing}
    return patch
