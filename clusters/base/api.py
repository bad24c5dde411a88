"""The `Cluster` protocol: the only access of serving, autoscaler and eventing to a cluster.

The semantics are those of the Kubernetes API (https://kubernetes.io/docs/reference/using-api/api-concepts/), reduced to
the parts that Knodel uses. `tests/contract` holds them as tests that every implementation passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from clusters.base.errors import ClusterError
from clusters.base.objects import Kind, Object

Subresource = Literal["", "status", "scale"]
PatchType = Literal["merge", "json"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
Trim = Callable[[Object], Object | None]
"""Return the part of an object that its reader keeps, with its metadata; None to drop the object."""


def trimmed(objects: Iterable[Object], trim: Trim) -> list[Object]:
    """Return what `trim` keeps of these objects."""
    return [kept for one in objects if (kept := trim(one)) is not None]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change. `object` is the whole object after the change, or before a deletion; a BOOKMARK has only metadata."""

    type: EventType
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A consistent snapshot. A watch from `resource_version` continues without a gap."""

    items: Sequence[Object]
    resource_version: str


class Cluster(Protocol):
    """A cluster with the interface of Kubernetes.

    Every method may raise `Unavailable`. Namespaced kinds need `namespace`; cluster-scoped kinds ignore it. Label
    selectors are strings in Kubernetes' grammar (`a=b,c!=d,e in (f,g),h,!i`). Never change a returned object in place.

    Example:
        model = await cluster.get(MODEL, "iris", "default")
        async for event in cluster.watch(MODEL, version_of(model), "default"): ...
    """

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return one object. Raises NotFound."""
        ...

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", *, trim: Trim | None = None
    ) -> ObjectList:
        """Return the objects of a kind, in all namespaces or in one. Raises Invalid for a malformed selector.

        `trim` is applied to each page of a large list as it arrives, so the whole list is never in memory.
        """
        ...

    def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Yield the changes after `resource_version`, in order, for as long as the caller iterates.

        Raises Gone when `resource_version` is older than the kept history. Then list again.
        """
        ...

    async def create(self, kind: Kind, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Store a new object and return it. `.status` is dropped for kinds with a status subresource.

        `metadata.generateName` makes the name where `name` is absent. Raises AlreadyExists and Invalid, and NotFound
        for an absent or terminating namespace.
        """
        ...

    async def create_all(
        self, kind: Kind, objects: Sequence[Object], *, manager: str
    ) -> Sequence[Object | ClusterError]:
        """Store new objects, each with a name, and return for each the object or the error that `create` would give.

        The caller must not change the objects afterwards. One call costs less than many calls of `create`. It is not a
        transaction: some objects may be stored and others refused.
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
        """Apply `obj` on the server and return the result; an absent object is created.

        `obj` holds all fields that `manager` wants to own. A field that it applied before and left out now is removed,
        unless another manager owns it. Maps merge by key; lists are atomic. An apply without a change writes nothing
        and keeps the resourceVersion. `metadata.resourceVersion` and `metadata.uid` are preconditions where given, but
        a resourceVersion alone does not prevent the creation of an absent object.

        Raises Conflict with `fields` when another manager owns a field with another value, unless `force`; Invalid;
        and NotFound for a subresource of an absent object.
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
        """Apply a JSON merge patch (RFC 7386) or a JSON patch (RFC 6902) and return the object.

        A `metadata.resourceVersion` in a merge patch is a precondition. A patch without a change writes nothing.
        Raises NotFound, Invalid, and Conflict for a failed precondition or `test` operation.
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
        """Delete an object, and its dependents in the background.

        An object with finalizers only gets a deletionTimestamp and remains until they are removed. So does a Pod on a
        node until it has stopped, unless `grace_period` (s) is 0. Raises NotFound, and Conflict when `uid` or
        `resource_version` differs.
        """
        ...

    async def scale(
        self, kind: Kind, name: str, namespace: str, replicas: int, *, manager: str, uid: str = ""
    ) -> Object:
        """Set `.spec.replicas` through the scale subresource and return the Scale object.

        If a manager owned the replicas before, `manager` owns them afterwards. Raises NotFound, Invalid, and Conflict
        when the object has another uid than `uid`: it was deleted and created again.
        """
        ...
