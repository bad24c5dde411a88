"""How objects go: the mark, the grace of Pods, and what holds an object after the mark. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from clusters.base.errors import Forbidden
from clusters.base.objects import NAMESPACE, POD, Kind, Object, generation_of, is_deleting, timestamp
from clusters.embedded.store.batch import Remove

PROTECTED_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public"})

DEFAULT_POD_GRACE = 30
"""s, `spec.terminationGracePeriodSeconds` where a Pod does not say (Kubernetes' default)."""


def check_deletable(kind: Kind, name: str) -> None:
    """Raise Forbidden for the Namespaces that Kubernetes' admission plugin NamespaceLifecycle does not let go."""
    if kind == NAMESPACE and name in PROTECTED_NAMESPACES:
        raise Forbidden(f'namespaces "{name}" is forbidden: this namespace may not be deleted')


def mark(kind: Kind, before: Object, now: datetime, grace: int | None) -> Object | Remove:
    """`before` with its `deletionTimestamp`, or removed when nothing holds it.

    Only Pods have a grace period (`grace` seconds, or what they state); as in Kubernetes their deletionTimestamp is its
    end, and a second deletion may only shorten it. The mark raises the generation.
    """
    metadata = before["metadata"]
    seconds = _grace_of(before, grace) if kind == POD else 0
    if is_deleting(before) and seconds >= int(metadata.get("deletionGracePeriodSeconds", 0)):
        return vanish(before)
    end = timestamp(now + timedelta(seconds=seconds))
    marked = {**metadata, "deletionTimestamp": end, "deletionGracePeriodSeconds": seconds}
    if not is_deleting(before):
        marked["generation"] = generation_of(before) + 1
    after = {**before, "metadata": marked}
    if kind == NAMESPACE:
        after["status"] = {**(before.get("status") or {}), "phase": "Terminating"}
    return vanish(after)


def vanish(obj: Object) -> Object | Remove:
    """Remove an object that is being deleted and that neither finalizers nor a grace period hold any more."""
    metadata = obj["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return Remove(obj) if is_deleting(obj) and not held else obj


def _grace_of(pod: Object, asked: int | None) -> int:
    if asked is not None:
        return max(asked, 0)
    stated = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    return int(stated) if stated is not None else DEFAULT_POD_GRACE
