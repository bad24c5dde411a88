"""How statuses are made and written: only what differs, and nothing when nothing does."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from clusters.base.api import Cluster
from clusters.base.objects import Kind, Object, name_of, namespace_of, timestamp, version_of


def counts(**numbers: int) -> Object:
    """Status fields; zeros are left out, as Kubernetes leaves them out."""
    return {name: number for name, number in numbers.items() if number}


def status_of(obj: Object) -> Object:
    """`.status`, never None."""
    return dict(obj.get("status") or {})


def conditions_by_type(obj: Object) -> dict[str, Object]:
    """The status conditions by their type."""
    return {condition["type"]: dict(condition) for condition in status_of(obj).get("conditions") or ()}


def condition(
    former: Object | None, type: str, status: str, reason: str, message: str, now: datetime, *, timed: bool = False
) -> Object:
    """A condition after `former`: times move only with what they speak of.

    `timed`: with `lastUpdateTime`, which Deployments have and which moves with every new reason or message.
    """
    fresh: Object = {"type": type, "status": status, "reason": reason, "message": message}
    if former is not None and all(former.get(field) == value for field, value in fresh.items()):
        return former
    moved = former is None or former.get("status") != status
    fresh["lastTransitionTime"] = timestamp(now) if moved or former is None else former.get("lastTransitionTime")
    if timed:
        fresh["lastUpdateTime"] = timestamp(now)
    return fresh


async def write_status(cluster: Cluster, kind: Kind, obj: Object, status: Object, manager: str) -> None:
    """Put `status` in place of the object's own when they differ.

    Raises Conflict when the object is not the present one: the next pass sees that one.
    """
    before = status_of(obj)
    if status == before:
        return
    removed: dict[str, Any] = {name: None for name in before if name not in status}
    changed = {name: value for name, value in status.items() if before.get(name) != value}
    patch = {"metadata": {"resourceVersion": version_of(obj)}, "status": {**removed, **changed}}
    await cluster.patch(kind, name_of(obj), patch, namespace_of(obj), manager=manager, subresource="status")
