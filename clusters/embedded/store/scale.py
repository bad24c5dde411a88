"""The Scale object of the scale subresource.

Source: https://kubernetes.io/docs/reference/generated/kubernetes-api/ `autoscaling/v1 Scale`.
"""

from __future__ import annotations

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import Kind, Object
from clusters.base.selectors import selector_for

API_VERSION = "autoscaling/v1"
LARGEST_REPLICAS = 2**31 - 1
"""The maximum of int32, the type of `spec.replicas`."""

_SHOWN_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Object) -> Object:
    """Return the Scale of a workload."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return {
        "apiVersion": API_VERSION,
        "kind": "Scale",
        "metadata": {key: metadata[key] for key in _SHOWN_METADATA if key in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": selector_for((spec.get("selector") or {}).get("matchLabels") or {}),
        },
    }


def replicas_of(kind: Kind, scale: Object) -> int:
    """Return `spec.replicas` of a Scale in a request. Raises Invalid."""
    spec = scale.get("spec")
    replicas = spec.get("replicas") if isinstance(spec, dict) else None
    if type(replicas) is not int or not 0 <= replicas <= LARGEST_REPLICAS:
        name = (scale.get("metadata") or {}).get("name", "")
        fault = FieldError("spec.replicas", f"{replicas!r} is not allowed: use an integer of at least 0")
        raise Invalid(f"{kind} {name!r}", [fault])
    return replicas


def apply_scale(kind: Kind, obj: Object, scale: Object) -> Object:
    """Return the workload `obj` with the replicas and the preconditions of `scale`. Raises Invalid."""
    replicas = replicas_of(kind, scale)
    stated = {key: (scale.get("metadata") or {}).get(key, "") for key in ("uid", "resourceVersion")}
    metadata = {**obj["metadata"], **{key: value for key, value in stated.items() if value}}
    return {**obj, "metadata": metadata, "spec": {**(obj.get("spec") or {}), "replicas": replicas}}
