"""What Knative's webhook fills in: the embedded cluster has no mutating admission, so the makers do it here.

Source: knative/serving `pkg/apis/serving/v1/*_defaults.go`, ConfigMaps config-defaults and config-deployment.
"""

from __future__ import annotations

from typing import Any

from clusters.base.objects import Object
from clusters.embedded.knative.names import USER_CONTAINER

REVISION_TIMEOUT = 300  # s, revision-timeout-seconds: how long one request may take
CONTAINER_CONCURRENCY = 0  # no hard limit
ALL_TRAFFIC = 100  # percent


def revision_spec(spec: Object) -> Object:
    """A RevisionSpec with timeout, concurrency and the container's name and readiness probe filled in."""
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
    """A readiness probe with Knative's defaults: a TCP connect when no other handler is named."""
    filled = {"successThreshold": 1, **probe}
    if not any(handler in filled for handler in ("httpGet", "tcpSocket", "exec", "grpc")):
        filled["tcpSocket"] = {}
    if filled.get("periodSeconds"):
        filled = {"failureThreshold": 3, "timeoutSeconds": 1, **filled}
    return filled


def traffic(targets: list[Any] | None) -> list[Object]:
    """Traffic targets with `percent` and `latestRevision` said; none at all is 100 % to the latest revision."""
    if not targets:
        return [{"latestRevision": True, "percent": ALL_TRAFFIC}]
    return [
        {**target, "latestRevision": target.get("latestRevision", not target.get("revisionName")),
         "percent": target.get("percent") or 0}
        for target in targets
    ]  # fmt: skip
