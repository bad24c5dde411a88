"""A client for the Knative reconcilers: reads come from informers, overlaid with the client's own latest writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.base.api import Cluster, Subresource
from clusters.base.errors import AlreadyExists, NotFound
from clusters.base.objects import Key, Kind, Object, is_deleting, key_of, name_of, namespace_of, uid_of
from clusters.runtime.informer import Informer, Informers

MANAGER = "knative-serving"


class CachedClient:
    """Reads return the client's own writes. Writes are sent only if something differs."""

    def __init__(self, cluster: Cluster, informers: Informers) -> None:
        self._cluster = cluster
        self._informers = informers

    def informer(self, kind: Kind) -> Informer:
        """Return the shared informer of a kind."""
        return self._informers[kind]

    def get(self, kind: Kind, name: str, namespace: str) -> Object | None:
        """Return the object as last observed or last written, or None."""
        return self._informers[kind].own_writes.get(name, namespace)

    async def create(self, kind: Kind, child: Object, owner_kind: Kind, owner: Object) -> Object:
        """Create a child, and return it. Return the existing object if the name is taken.

        Raises NotFound when the owner was deleted, because the child would have no owner.
        """
        present = await self._cluster.get(owner_kind, name_of(owner), namespace_of(owner))
        if uid_of(present) != uid_of(owner) or is_deleting(present):
            raise NotFound(f"{owner_kind} {key_of(owner)} was deleted: its {kind.kind} is not created")
        try:
            made = await self._cluster.create(kind, child, manager=MANAGER)
        except AlreadyExists:
            made = await self._cluster.get(kind, name_of(child), namespace_of(child))
        self._informers[kind].own_writes.record(made)
        return made

    async def update(self, kind: Kind, have: Object, want: Mapping[str, Any]) -> Object:
        """Set the fields in `want` (the whole `spec`, the whole `metadata.labels` …) to its values, and keep all
        others.
        """
        return await self._patch(kind, have, difference(_select(have, want), want))

    async def update_status(self, kind: Kind, have: Object, status: Object) -> Object:
        """Update the status if it differs. Ignore a deleted object."""
        former = have.get("status") or {}
        if former == status:
            return have
        try:
            patch = {"metadata": {"uid": uid_of(have)}, "status": difference(former, status)}
            return await self._patch(kind, have, patch, "status")
        except NotFound:
            return have

    async def annotate(self, kind: Kind, have: Object, metadata: Mapping[str, Any]) -> None:
        """Merge labels and annotations; None removes one. Ignore a deleted object."""
        try:
            await self._patch(kind, have, {"metadata": metadata} if metadata else {})
        except NotFound:
            return

    async def delete(self, kind: Kind, obj: Object) -> None:
        """Delete the object, unless it was replaced. Ignore a deleted object."""
        try:
            await self._cluster.delete(kind, name_of(obj), namespace_of(obj), uid=uid_of(obj))
        except NotFound:
            return

    async def _patch(self, kind: Kind, have: Object, patch: Mapping[str, Any], subresource: Subresource = "") -> Object:
        if not patch:
            return have
        name, namespace, own = name_of(have), namespace_of(have), self._informers[kind].own_writes
        try:
            written = await self._cluster.patch(kind, name, patch, namespace, manager=MANAGER, subresource=subresource)
        except NotFound:
            own.discard(Key(namespace, name))
            raise
        own.record(written)
        return written


def difference(have: Mapping[str, Any], want: Mapping[str, Any]) -> Object:
    """Return the merge patch (RFC 7386) from `have` to `want`; empty when they are equal."""
    patch: Object = {key: None for key in have if key not in want}
    for key, value in want.items():
        if key not in have:
            patch[key] = value
        elif isinstance(value, Mapping) and isinstance(have[key], Mapping):
            inner = difference(have[key], value)
            if inner:
                patch[key] = inner
        elif have[key] != value:
            patch[key] = value
    return patch


def _select(have: Mapping[str, Any], want: Mapping[str, Any]) -> Object:
    """Return the fields of `have` that are in `want`, at the top and in `metadata`. An absent map is an empty one."""
    selected: Object = {key: have[key] for key in want if key in have}
    if "metadata" in want:
        selected["metadata"] = {key: have["metadata"].get(key, {}) for key in want["metadata"]}
    return selected
