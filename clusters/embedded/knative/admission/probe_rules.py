"""Admission rules of a container's probes.

Source: knative/serving `pkg/apis/serving/k8s_validation.go` (`validateProbe`, `validateReadinessProbe`). The rules are
for the probe as written: what Knative fills in (a TCP readiness probe, thresholds) may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.embedded.knative.admission.checks import Faults

LARGEST_INT32 = 2**31 - 1
HANDLERS = ("httpGet", "tcpSocket", "exec", "grpc")
_HANDLER_FIELDS = {
    "httpGet": ("host", "path", "scheme", "httpHeaders", "port"),
    "tcpSocket": ("host", "port"),
    "exec": ("command",),
    "grpc": ("port", "service"),
}
_NUMBERS = (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
    "terminationGracePeriodSeconds",
)  # fmt: skip


def check_probe(faults: Faults, path: str, value: object, *, port_name: str, readiness: bool, serving: bool) -> None:
    """One probe; `port_name` is what the container's port is called, `serving` whether requests come to it."""
    probe = faults.map(path, value)
    faults.closed(path, probe, (*HANDLERS, *_NUMBERS))
    for field in _NUMBERS:
        faults.integer(f"{path}.{field}", probe.get(field), 0, LARGEST_INT32)
    faults.one_of(path, probe, HANDLERS, required=not (readiness and serving))
    for handler in HANDLERS:
        if probe.get(handler) is not None:
            _check_handler(faults, f"{path}.{handler}", handler, probe[handler], port_name, serving=serving)
    if readiness:
        _check_aggressive(faults, path, probe)


def _check_handler(faults: Faults, path: str, handler: str, value: object, port_name: str, *, serving: bool) -> None:
    fields = faults.map(path, value)
    faults.closed(path, fields, _HANDLER_FIELDS[handler])
    port = fields.get("port")
    if handler not in ("httpGet", "tcpSocket"):
        return
    if port is not None and (isinstance(port, bool) or not isinstance(port, int | str)):
        faults.add(f"{path}.port", f"{port!r} is not allowed: a number or the port's name is expected")
    elif serving and isinstance(port, str) and port not in ("", port_name):
        faults.add(f"{path}.port", f"invalid value: {port!r}: Probe port must match container port")
    elif not serving and not port:
        faults.add(f"{path}.port", "missing field: Probe port must be specified")


def _check_aggressive(faults: Faults, path: str, probe: Mapping[str, Any]) -> None:
    """Without a period Knative probes as often as it can, and has its own thresholds."""
    if probe.get("periodSeconds"):
        return
    for field in ("failureThreshold", "timeoutSeconds"):
        if probe.get(field):
            faults.add(f"{path}.{field}", f"{field} is disallowed when periodSeconds is zero")
