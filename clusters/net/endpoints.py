"""Endpoints of Pods: the address and ports to connect to, on either cluster.

On Kubernetes a Pod has an address of its own, and its declared ports are the real ones. On the embedded cluster all
Pods share 127.0.0.1. Its kubelet maps each declared port to a real one in the annotation `ANNOTATION_PORTS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.base.objects import ANNOTATION_PORTS, Object, annotations_of, condition_of, is_deleting, key_of

DEFAULT_PORT = 8080  # of a container without declared ports, by Knative's container contract
MANAGEMENT_PORT = 9095  # health and /stats of every model server; queue-proxy uses 9090 and 9091


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint of a Pod (`namespace/name`): `port` for requests, `management_port` for health and `/stats`.

    On the embedded cluster, requests carry `token` (`clusters.gateway.token`).
    """

    pod: str
    host: str
    port: int
    management_port: int
    token: str = field(default="", repr=False)


def endpoint_of(pod: Object) -> Endpoint | None:
    """Return the endpoint of a Pod, or None while it has no address."""
    host = (pod.get("status") or {}).get("podIP")
    if not host:
        return None
    ports = real_ports(pod)
    declared = declared_port(pod)
    return Endpoint(
        pod=str(key_of(pod)),
        host=str(host),
        port=ports.get(str(declared), declared),
        management_port=ports.get(str(MANAGEMENT_PORT), MANAGEMENT_PORT),
    )


def declared_port(pod: Object) -> int:
    """Return the port for requests that the first container with ports declares."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            return int(port["containerPort"])
    return DEFAULT_PORT


def real_ports(pod: Object) -> Mapping[str, int]:
    """Return real ports by container port (a string); empty for a Pod with its own address or a bad annotation."""
    text = annotations_of(pod).get(ANNOTATION_PORTS)
    try:
        return {} if not text else {str(port): int(real) for port, real in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def is_ready(pod: Object) -> bool:
    """Return whether a Pod accepts requests: its condition Ready is True, and it is not being deleted."""
    condition = condition_of(pod, "Ready")
    return condition is not None and condition.get("status") == "True" and not is_deleting(pod)
