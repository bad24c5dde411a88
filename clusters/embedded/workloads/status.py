"""Make conditions and counts, and write statuses that have changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from clusters.base.api import Cluster
from clusters.base.objects import Kind, Object, name_of, namespace_of, timestamp, version_of


def counts(**numbers: int) -> Object:
    """Return status fields without zeros, which Kubernetes omits too."""
    return {name: number for name, number in numbers.items() if number}


def status_of(obj: Object) -> Object:
    """Return `.status`, empty if it is missing."""
    return dict(obj.get("status") or {})


def conditions_by_type(obj: Object) -> dict[str, Object]:
    """Return the status conditions by type."""
    return {condition["type"]: dict(condition) for condition in status_of(obj).get("conditions") or ()}


def condition(
    former: Object | None, type: str, status: str, reason: str, message: str, now: datetime, *, timed: bool = False
) -> Object:
    """Return the condition that follows `former`. `lastTransitionTime` changes with the status.

    `timed` adds `lastUpdateTime`, which conditions of Deployments have and which changes with reason and message too.
    """
    fresh: Object = {"type": type, "status": status, "reason": reason, "message": message}
    if former is not None and all(former.get(field) == value for field, value in fresh.items()):
        return former
    unchanged = former is not None and former.get("status") == status
    fresh["lastTransitionTime"] = former.get("lastTransitionTime") if former and unchanged else timestamp(now)
    if timed:
        fresh["lastUpdateTime"] = timestamp(now)
    return fresh


async def write_status(cluster: Cluster, kind: Kind, obj: Object, status: Object, manager: str) -> None:
    """Replace the status of the object if it differs. Raises Conflict when the stored object has another version."""
    before = status_of(obj)
    if status == before:
        return
    removed: dict[str, Any] = {name: None for name in before if name not in status}
    changed = {name: value for name, value in status.items() if before.get(name) != value}
    patch = {"metadata": {"resourceVersion": version_of(obj)}, "status": {**removed, **changed}}
    await cluster.patch(kind, name_of(obj), patch, namespace_of(obj), manager=manager, subresource="status")
