"""Where a Pod answers: its address and ports as other parts of the system dial them, on either cluster.

On Kubernetes a Pod has an address of its own and its declared ports are the real ones. On the embedded cluster all Pods
share 127.0.0.1, so the kubelet gives each declared port a real one and says so in the annotation `ANNOTATION_PORTS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.base.objects import ANNOTATION_PORTS, Object, annotations_of, condition_of, is_deleting, key_of

DEFAULT_PORT = 8080  # of a container that declares none, as in Knative's container contract
MANAGEMENT_PORT = 9095  # health and /stats of every model server; queue-proxy has 9090 and 9091


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Pod (`namespace/name`) and where it listens; `port` takes requests, `management_port` answers `/stats`.

    `token` is sent along with requests on the embedded cluster (`clusters.gateway.token`).
    """

    pod: str
    host: str
    port: int
    management_port: int
    token: str = field(default="", repr=False)


def endpoint_of(pod: Object) -> Endpoint | None:
    """The Pod's endpoint, or None while it has no address yet."""
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
    """The port that takes requests as the Pod's first container declares it."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            return int(port["containerPort"])
    return DEFAULT_PORT


def real_ports(pod: Object) -> Mapping[str, int]:
    """Container port (as a string) → real port; empty when the Pod has its own address, or the word is no kubelet's."""
    text = annotations_of(pod).get(ANNOTATION_PORTS)
    try:
        return {} if not text else {str(port): int(real) for port, real in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def is_ready(pod: Object) -> bool:
    """Whether the Pod may be sent requests: condition Ready True, and not being deleted."""
    condition = condition_of(pod, "Ready")
    return condition is not None and condition.get("status") == "True" and not is_deleting(pod)
