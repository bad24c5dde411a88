"""Label Revisions and Configurations with the Routes that send traffic to them.

Source: knative/serving `pkg/reconciler/labeler`. An object is marked as soon as a Route refers to it. So is the latest
created Revision, so that it is reachable when it becomes ready. Marks are removed only when the Route is ready or
failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from clusters.base.clock import Clock
from clusters.base.objects import (
    CONFIGURATION,
    REVISION,
    SERVICE,
    Key,
    Kind,
    Object,
    condition_of,
    controller_of,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    timestamp,
    uid_of,
)
from clusters.embedded.knative import names
from clusters.embedded.knative.client import CachedClient
from clusters.embedded.knative.conditions import UNKNOWN
from clusters.embedded.knative.lifecycle import READY

INDEX = "knative.routes"
_OWNERS = {kind.kind: kind for kind in (SERVICE, CONFIGURATION)}


def by_route(obj: Object) -> list[str]:
    """Index Revisions and Configurations by the Routes in their annotation."""
    return [f"{namespace_of(obj)}/{name}" for name in names.routes_of(obj)]


class Labeler:
    """Update the label routingState and the annotation routes as the Routes change."""

    def __init__(self, client: CachedClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        for kind in (REVISION, CONFIGURATION):
            client.informer(kind).add_index(INDEX, by_route)

    async def sync(self, route: Object) -> None:
        """Mark the targets of the Route. Once the Route is ready or failed, remove the marks of other objects."""
        revisions, configurations = self._targets(route)
        key = key_of(route)
        if (condition_of(route, READY) or {}).get("status", UNKNOWN) != UNKNOWN:
            await self._remove(REVISION, key, revisions)
            await self._remove(CONFIGURATION, key, configurations)
        await self._add(REVISION, key, revisions)
        await self._add(CONFIGURATION, key, configurations)

    async def clear(self, route: Key) -> None:
        """Remove the marks of a deleted Route.

        A Service marks its Configuration before it creates the Route, so nothing is removed while the Service exists.
        """
        if self._client.get(SERVICE, route.name, route.namespace) is None:
            await self._remove(REVISION, route, ())
            await self._remove(CONFIGURATION, route, ())

    def _targets(self, route: Object) -> tuple[set[str], set[str]]:
        revisions: set[str] = set()
        configurations: set[str] = set()
        namespace = namespace_of(route)
        for target in (*((route.get("status") or {}).get("traffic") or ()), *(route["spec"].get("traffic") or ())):
            configuration = target.get("configurationName", "")
            revision = self._client.get(REVISION, target.get("revisionName", ""), namespace)
            if target.get("revisionName") and revision is None:
                continue
            if revision is not None:
                revisions.add(name_of(revision))
                configuration = (controller_of(revision) or {}).get("name", configuration)
            found = self._client.get(CONFIGURATION, configuration, namespace)
            if found is not None:
                configurations.add(name_of(found))
                latest = (found.get("status") or {}).get("latestCreatedRevisionName")
                if latest and target.get("latestRevision", not target.get("revisionName")):
                    revisions.add(latest)
        return revisions, configurations

    async def _add(self, kind: Kind, route: Key, wanted: Iterable[str]) -> None:
        for name in sorted(wanted):
            obj = self._client.get(kind, name, route.namespace)
            if obj is not None:
                await self._mark(kind, obj, sorted({*names.routes_of(obj), route.name}))

    async def _remove(self, kind: Kind, route: Key, kept: Iterable[str]) -> None:
        for obj in self._client.informer(kind).indexed(INDEX, str(route)):
            present = self._client.get(kind, name_of(obj), route.namespace)
            if name_of(obj) in kept or present is None or self._is_doomed(present):
                continue
            await self._mark(kind, present, [name for name in names.routes_of(present) if name != route.name])

    def _is_doomed(self, obj: Object) -> bool:
        """Return whether the object will be garbage-collected, because its owner was deleted.

        Its mark is irrelevant.
        """
        owner = controller_of(obj)
        kind = _OWNERS.get(owner["kind"]) if owner is not None else None
        if owner is None or kind is None:
            return False
        parent = self._client.get(kind, owner["name"], namespace_of(obj))
        return parent is None or uid_of(parent) != owner["uid"] or self._is_doomed(parent)

    async def _mark(self, kind: Kind, obj: Object, routes: list[str]) -> None:
        metadata: Object = {}
        if routes != names.routes_of(obj):
            metadata["annotations"] = {names.ANNOTATION_ROUTES: ",".join(routes) or None}
        state = names.STATE_ACTIVE if routes else names.STATE_RESERVE
        if kind is REVISION and labels_of(obj).get(names.LABEL_ROUTING_STATE) != state:
            metadata["labels"] = {names.LABEL_ROUTING_STATE: state}
            metadata.setdefault("annotations", {})[names.ANNOTATION_ROUTING_STATE_MODIFIED] = timestamp(
                self._clock.now()
            )
        await self._client.annotate(kind, obj, metadata)
