"""The `Cluster` protocol: all that serving, autoscaler and eventing know of the world.

Semantics are those of the Kubernetes API (https://kubernetes.io/docs/reference/using-api/api-concepts/), narrowed to
what Knodel uses; `tests/contract` states them as tests that every adapter passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from clusters.base.errors import ClusterError
from clusters.base.objects import Kind, Object

Subresource = Literal["", "status", "scale"]
PatchType = Literal["merge", "json"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. `object` is the whole object after it (before it for DELETED; only metadata for BOOKMARK)."""

    type: EventType
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A consistent snapshot; `resource_version` is where a watch goes on without a gap."""

    items: Sequence[Object]
    resource_version: str


class Cluster(Protocol):
    """A Kubernetes-shaped cluster.

    Every method may raise `Unavailable`. Namespaced kinds need `namespace`; kinds without ignore it. Label selectors
    are strings in Kubernetes' grammar (`a=b,c!=d,e in (f,g),h,!i`). Returned objects are not to be changed in place.
    """

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """One object. Raises NotFound."""
        ...

    async def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> ObjectList:
        """All objects of the kind (in one namespace, matching labels). Raises Invalid for a bad selector."""
        ...

    def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Changes after `resource_version`, in order, for as long as the caller iterates.

        Raises Gone when `resource_version` is older than the history kept: list again.
        """
        ...

    async def create(self, kind: Kind, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Store a new object; `.status` is dropped for kinds with a status subresource.

        `metadata.generateName` is honoured when `name` is absent. Raises AlreadyExists, Invalid, and NotFound for an
        absent or terminating namespace on clusters that need namespaces to exist.
        """
        ...

    async def create_all(
        self, kind: Kind, objects: Sequence[Object], *, manager: str
    ) -> Sequence[Object | ClusterError]:
        """Store new objects, each with a name; for each, in order, what `create` would return or raise.

        They are handed over: plain JSON that the caller does not change any more. It costs less than as many calls, and
        is no transaction: some may be stored and others not.
        """
        ...

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
        """Server-side apply: `obj` is the whole of what `manager` wants to say (creates the object when absent).

        Fields that the manager said before and no longer says are removed unless another manager owns them. Maps merge
        by key; lists are atomic. An apply that changes nothing writes nothing (same resourceVersion). With
        `metadata.resourceVersion` or `metadata.uid` given they are preconditions; of an absent object only the uid is:
        a resourceVersion alone does not keep it from being created. Raises Conflict (with `fields`) for fields of
        other managers unless `force`, Invalid, NotFound for a subresource of an absent object.
        """
        ...

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
        """JSON merge patch (RFC 7386), or JSON patch (RFC 6902) whose failed `test` raises Conflict.

        A `metadata.resourceVersion` in a merge patch is a precondition. A patch that changes nothing writes nothing.
        Raises NotFound, Conflict, Invalid.
        """
        ...

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
        """Ask for deletion, background propagation: dependents by ownerReference go after it.

        With finalizers, and for Pods with a node to stop them (unless `grace_period=0`), the object only gets its
        deletionTimestamp and stays until those are gone. Raises NotFound; Conflict when `uid` or `resource_version`
        differ.
        """
        ...

    async def scale(
        self, kind: Kind, name: str, namespace: str, replicas: int, *, manager: str, uid: str = ""
    ) -> Object:
        """Set `.spec.replicas` through the scale subresource; returns the Scale object. Raises NotFound, Invalid.

        `manager` owns the replicas afterwards if anybody did before. Raises Conflict when `uid` is given and differs:
        the object was deleted, and another one made by its name.
        """
        ...
