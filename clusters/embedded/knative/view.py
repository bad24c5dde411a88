"""What the controllers of the stand-in see and how they write: informers, overlaid with their own latest writes.

A pass that follows a write at once must not act on the state before it (it would create a child twice or take a step
back in a status). So every answer to a write is kept until the informer has caught up with it, and no longer: an answer
may also come after the object was seen to go. That resourceVersions are numbers that only rise is a fact of the
embedded cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.base.api import Cluster, Subresource
from clusters.base.errors import AlreadyExists, NotFound
from clusters.base.objects import Key, Kind, Object, is_deleting, key_of, name_of, namespace_of, uid_of, version_of
from clusters.runtime.informer import Informer, Informers

MANAGER = "knative-serving"


class View:
    """Reads its own writes; writes only what differs."""

    def __init__(self, cluster: Cluster, informers: Informers) -> None:
        self._cluster = cluster
        self._informers = informers
        self._written: dict[Kind, dict[Key, Object]] = {}

    def informer(self, kind: Kind) -> Informer:
        """The shared informer of a kind."""
        if kind not in self._written:
            self._written[kind] = {}
            self._informers[kind].subscribe(lambda before, after: self._caught_up(kind, before, after))
        return self._informers[kind]

    def get(self, kind: Kind, name: str, namespace: str) -> Object | None:
        """The object as last seen or last written by us, or None."""
        informer = self.informer(kind)
        written = self._written[kind].get(Key(namespace, name))
        return written if written is not None and _is_ahead(written, informer) else informer.get(name, namespace)

    async def create(self, kind: Kind, child: Object, owner_kind: Kind, owner: Object) -> Object:
        """Create a child; returns the one that is there when the name is taken.

        Raises NotFound when the owner, read afresh, is gone: a child made after that would be nobody's.
        """
        present = await self._cluster.get(owner_kind, name_of(owner), namespace_of(owner))
        if uid_of(present) != uid_of(owner) or is_deleting(present):
            raise NotFound(f"{owner_kind} {key_of(owner)} is gone: its {kind.kind} is not made")
        try:
            made = await self._cluster.create(kind, child, manager=MANAGER)
        except AlreadyExists:
            made = await self._cluster.get(kind, name_of(child), namespace_of(child))
        return self._keep(kind, made)

    async def update(self, kind: Kind, have: Object, want: Mapping[str, Any]) -> Object:
        """Make the fields named in `want` (whole `spec`, whole `metadata.labels` …) what it says; the others stay."""
        return await self._patch(kind, have, difference(_select(have, want), want))

    async def update_status(self, kind: Kind, have: Object, status: Object) -> Object:
        """Store a status if it differs; an object that is gone meanwhile needs none."""
        former = have.get("status") or {}
        if former == status:
            return have
        try:
            patch = {"metadata": {"uid": uid_of(have)}, "status": difference(former, status)}
            return await self._patch(kind, have, patch, "status")
        except NotFound:
            return have

    async def annotate(self, kind: Kind, have: Object, metadata: Mapping[str, Any]) -> None:
        """Merge labels and annotations (None removes one); an object that is gone meanwhile needs none."""
        try:
            await self._patch(kind, have, {"metadata": metadata} if metadata else {})
        except NotFound:
            return

    async def delete(self, kind: Kind, obj: Object) -> None:
        """Delete this very object; one that is gone already is fine."""
        try:
            await self._cluster.delete(kind, name_of(obj), namespace_of(obj), uid=uid_of(obj))
        except NotFound:
            return

    async def _patch(self, kind: Kind, have: Object, patch: Mapping[str, Any], subresource: Subresource = "") -> Object:
        if not patch:
            return have
        name, namespace = name_of(have), namespace_of(have)
        try:
            written = await self._cluster.patch(kind, name, patch, namespace, manager=MANAGER, subresource=subresource)
        except NotFound:
            self._written[kind].pop(Key(namespace, name), None)
            raise
        return self._keep(kind, written)

    def _keep(self, kind: Kind, written: Object) -> Object:
        if _is_ahead(written, self.informer(kind)):
            self._written[kind][key_of(written)] = written
        return written

    def _caught_up(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        obj = after if after is not None else before
        if obj is None:
            return
        written = self._written[kind].get(key_of(obj))
        if written is not None and (after is None or _number(after) >= _number(written)):
            del self._written[kind][key_of(obj)]


def difference(have: Mapping[str, Any], want: Mapping[str, Any]) -> Object:
    """The merge patch (RFC 7386) that turns `have` into `want`; empty when they are equal."""
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
    """`have` without the fields that `want` does not name at its top and in its `metadata`; no map is an empty map."""
    selected: Object = {key: have[key] for key in want if key in have}
    if "metadata" in want:
        selected["metadata"] = {key: have["metadata"].get(key, {}) for key in want["metadata"]}
    return selected


def _is_ahead(written: Object, informer: Informer) -> bool:
    """Whether the informer has not come to that write yet."""
    return int(informer.resource_version or 0) < _number(written)


def _number(obj: Object) -> int:
    return int(version_of(obj) or 0)
