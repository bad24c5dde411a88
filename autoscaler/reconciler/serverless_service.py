"""The ServerlessService of a PodAutoscaler: the one object that a class has to create, and which mode it is to have.

Knative: `pkg/reconciler/autoscaling/kpa/kpa.go` (mode), `…/resources/sks.go` (object). `Proxy` puts the activator in
the path, `Serve` sends straight to the replicas.

    desired 0                                    Proxy   nobody else could hold a request
    no replica ready                             Proxy
    burst capacity -1                            Proxy   asked for
    free slots below the wished burst capacity   Proxy   the activator spreads bursts
    requests wait at the activator               Proxy   they are served before newcomers
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

LEAST_ACTIVATORS = 2  # of all that run; Knative's least number per revision
ACTIVATOR_CAPACITY = 100.0  # requests at once of one activator: `activator-capacity` of config-autoscaler


class Mode(StrEnum):
    """Where the revision's requests go."""

    PROXY = "Proxy"
    SERVE = "Serve"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the mode depends on: replicas, and slots of work."""

    desired: int
    ready: int
    queued: int
    work: float
    slots: float  # of one replica
    burst_capacity: float


def wanted_mode(traffic: Traffic) -> Mode:
    """The mode by the table above."""
    free = traffic.ready * traffic.slots - traffic.work
    short = traffic.burst_capacity > 0 and free < traffic.burst_capacity
    asked = traffic.burst_capacity == ALWAYS_PROXY
    proxied = traffic.desired == 0 or traffic.ready == 0 or traffic.queued > 0 or short or asked
    return Mode.PROXY if proxied else Mode.SERVE


def wanted_activators(ready: int, slots: float, burst_capacity: float) -> int:
    """Activators that hold what the ready replicas and a burst bring. Knative: `computeNumActivators` in `kpa.go`."""
    if burst_capacity == 0.0:
        return LEAST_ACTIVATORS
    held = ready * slots + max(burst_capacity, 0.0)
    return max(LEAST_ACTIVATORS, math.ceil(held / ACTIVATOR_CAPACITY))


def make_serverless_service(pod_autoscaler: Object, mode: Mode, activators: int = LEAST_ACTIVATORS) -> Object:
    """The ServerlessService of this PodAutoscaler."""
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
    """A merge patch that brings `present` to `wanted`; empty when it is there."""
    patch: Object = {}
    if differing := {key: value for key, value in wanted["spec"].items() if present["spec"].get(key) != value}:
        patch["spec"] = differing
    labels = labels_of(present)
    if missing := {key: value for key, value in wanted["metadata"]["labels"].items() if labels.get(key) != value}:
        patch["metadata"] = {"labels": missing}
    return patch
