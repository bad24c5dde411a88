"""A `Cluster` that only a leader can write to: every write checks the Lease first.

After a suspension, a process finds that its Lease has expired by its own clock before the next write. Writes that were
in flight carry preconditions (see `clusters.runtime.lease`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from clusters.base.api import Cluster, ObjectList, PatchType, Subresource, Trim, WatchEvent
from clusters.base.errors import ClusterError, Unavailable
from clusters.base.objects import Kind, Object


class Leadership(Protocol):
    """The leadership of this process."""

    @property
    def valid(self) -> bool:
        """Return whether this process leads now."""
        ...


class FencedCluster:
    """A cluster whose writes raise Unavailable while `leadership` is not valid; reads are passed through."""

    def __init__(self, cluster: Cluster, leadership: Leadership) -> None:
        self._cluster = cluster
        self._leadership = leadership

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Call the method of the cluster."""
        return await self._cluster.get(kind, name, namespace)

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", *, trim: Trim | None = None
    ) -> ObjectList:
        """Call the method of the cluster."""
        return await self._cluster.list(kind, namespace, selector, trim=trim)

    def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Call the method of the cluster."""
        return self._cluster.watch(kind, resource_version, namespace, selector)

    async def create(self, kind: Kind, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Call the method of the cluster if this process leads. Raises Unavailable otherwise."""
        self._check(kind)
        return await self._cluster.create(kind, obj, manager=manager, dry_run=dry_run)

    async def create_all(
        self, kind: Kind, objects: Sequence[Object], *, manager: str
    ) -> Sequence[Object | ClusterError]:
        """Call the method of the cluster if this process leads. Raises Unavailable otherwise."""
        self._check(kind)
        return await self._cluster.create_all(kind, objects, manager=manager)

    async def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        manager: str,
        force: bool = False,
        subresource: Subresource = "",
        dry_run: bool = False,
    ) -> Object:
        """Call the method of the cluster if this process leads. Raises Unavailable otherwise."""
        self._check(kind)
        return await self._cluster.apply(
            kind, obj, manager=manager, force=force, subresource=subresource, dry_run=dry_run
        )

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        manager: str,
        type: PatchType = "merge",
        subresource: Subresource = "",
        dry_run: bool = False,
    ) -> Object:
        """Call the method of the cluster if this process leads. Raises Unavailable otherwise."""
        self._check(kind)
        return await self._cluster.patch(
            kind, name, patch, namespace, manager=manager, type=type, subresource=subresource, dry_run=dry_run
        )

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period: int | None = None,
    ) -> None:
        """Call the method of the cluster if this process leads. Raises Unavailable otherwise."""
        self._check(kind)
        await self._cluster.delete(
            kind, name, namespace, uid=uid, resource_version=resource_version, grace_period=grace_period
        )

    async def scale(
        self, kind: Kind, name: str, namespace: str, replicas: int, *, manager: str, uid: str = ""
    ) -> Object:
        """Call the method of the cluster if this process leads. Raises Unavailable otherwise."""
        self._check(kind)
        return await self._cluster.scale(kind, name, namespace, replicas, manager=manager, uid=uid)

    def _check(self, kind: Kind) -> None:
        if not self._leadership.valid:
            raise Unavailable(f"{kind} not written: this process does not lead")
