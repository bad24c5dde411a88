"""A cluster that only a leader writes to: every write asks the Lease first.

A process that was stopped past its Lease and goes on finds it run out by its own clock, before its next write. What was
on its way already carries preconditions (see `clusters.runtime.lease`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from clusters.base.api import Cluster, ObjectList, PatchType, Subresource, WatchEvent
from clusters.base.errors import ClusterError, Unavailable
from clusters.base.objects import Kind, Object


class Leadership(Protocol):
    """What tells whether this process leads."""

    @property
    def valid(self) -> bool:
        """Whether it does now."""
        ...


class FencedCluster:
    """Reads go through, writes raise Unavailable while `leadership` is not valid."""

    def __init__(self, cluster: Cluster, leadership: Leadership) -> None:
        self._cluster = cluster
        self._leadership = leadership

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """As the cluster's."""
        return await self._cluster.get(kind, name, namespace)

    async def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> ObjectList:
        """As the cluster's."""
        return await self._cluster.list(kind, namespace, selector)

    def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """As the cluster's."""
        return self._cluster.watch(kind, resource_version, namespace, selector)

    async def create(self, kind: Kind, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        """As the cluster's, for a leader."""
        self._check(kind)
        return await self._cluster.create(kind, obj, manager=manager, dry_run=dry_run)

    async def create_all(
        self, kind: Kind, objects: Sequence[Object], *, manager: str
    ) -> Sequence[Object | ClusterError]:
        """As the cluster's, for a leader."""
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
        """As the cluster's, for a leader."""
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
        """As the cluster's, for a leader."""
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
        """As the cluster's, for a leader."""
        self._check(kind)
        await self._cluster.delete(
            kind, name, namespace, uid=uid, resource_version=resource_version, grace_period=grace_period
        )

    async def scale(
        self, kind: Kind, name: str, namespace: str, replicas: int, *, manager: str, uid: str = ""
    ) -> Object:
        """As the cluster's, for a leader."""
        self._check(kind)
        return await self._cluster.scale(kind, name, namespace, replicas, manager=manager, uid=uid)

    def _check(self, kind: Kind) -> None:
        if not self._leadership.valid:
            raise Unavailable(f"nothing is written to {kind}: this process does not lead any more")
