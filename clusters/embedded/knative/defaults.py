"""Knative's settings, and the defaults of its webhook.

The embedded cluster has no mutating admission, so the functions that create objects apply the defaults. Source:
knative/serving `pkg/apis/serving/v1/*_defaults.go`, and the ConfigMaps config-defaults, config-deployment,
config-autoscaler and config-gc.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from clusters.base.objects import Object
from clusters.embedded.knative.names import USER_CONTAINER

REVISION_TIMEOUT = 300  # s, revision-timeout-seconds: the maximum duration of a request
CONTAINER_CONCURRENCY = 0  # no hard limit
ALL_TRAFFIC = 100  # percent
HOUR = 3600.0  # s


@dataclass(frozen=True, slots=True)
class RevisionGC:
    """config-gc: a Revision that no Route refers to is deleted when it is stale, and when there are too many.

    None for a time or for the maximum disables that rule.
    """

    retain_since_create: float | None = 48 * HOUR
    """s after its creation (`retain-since-create-time`)."""
    retain_since_active: float | None = 15 * HOUR
    """s after it was last routed to (`retain-since-last-active-time`)."""
    min_non_active: int = 20
    """Minimum number that is kept (`min-non-active-revisions`)."""
    max_non_active: int | None = 1000
    """Maximum number that is kept, at any age (`max-non-active-revisions`)."""


@dataclass(frozen=True, slots=True)
class KnativeSettings:
    """The implemented settings of config-autoscaler, config-deployment and config-gc, with their defaults."""

    autoscaler_class: str = "kpa.autoscaling.knative.dev"
    """Class of a PodAutoscaler whose Revision has none (`pod-autoscaler-class`)."""
    initial_scale: int = 1
    """Number of ready replicas that a new Revision needs to become ready (`initial-scale`)."""
    progress_deadline: int = 600
    """s without progress after which a Deployment has failed (`progress-deadline`)."""
    gc: RevisionGC = field(default_factory=RevisionGC)


def revision_spec(spec: Object) -> Object:
    """Return a RevisionSpec with defaults for timeout, concurrency, and the container's name and readiness probe."""
    containers = [dict(container) for container in spec.get("containers") or ()]
    for number, container in enumerate(containers):
        if not container.get("name"):
            container["name"] = USER_CONTAINER if len(containers) == 1 else f"{USER_CONTAINER}-{number}"
        if len(containers) == 1 or container.get("ports"):
            container["readinessProbe"] = readiness_probe(container.get("readinessProbe") or {})
    filled: Object = {"enableServiceLinks": False, **spec, "containers": containers}
    filled["timeoutSeconds"] = spec.get("timeoutSeconds") or REVISION_TIMEOUT
    filled.setdefault("containerConcurrency", CONTAINER_CONCURRENCY)
    return filled


def readiness_probe(probe: Object) -> Object:
    """Return a readiness probe with Knative's defaults: a TCP connection if it has no handler."""
    filled = {"successThreshold": 1, **probe}
    if not any(handler in filled for handler in ("httpGet", "tcpSocket", "exec", "grpc")):
        filled["tcpSocket"] = {}
    if filled.get("periodSeconds"):
        filled = {"failureThreshold": 3, "timeoutSeconds": 1, **filled}
    return filled


def traffic(targets: list[Any] | None) -> list[Object]:
    """Return traffic targets with `percent` and `latestRevision`. The default is 100 % to the latest revision."""
    if not targets:
        return [{"latestRevision": True, "percent": ALL_TRAFFIC}]
    return [
        {**target, "latestRevision": target.get("latestRevision", not target.get("revisionName")),
         "percent": target.get("percent") or 0}
        for target in targets
    ]  # fmt: skip
