"""Writes on Revisions and Configurations which Routes send traffic to them.

Source: knative/serving `pkg/reconciler/labeler`. Marks are set as soon as a Route names a target (also on the latest
created Revision, so that it is reachable when it becomes ready) and taken off only when the Route is settled.
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
from clusters.embedded.knative.conditions import UNKNOWN
from clusters.embedded.knative.lifecycle import READY
from clusters.embedded.knative.view import View

INDEX = "knative.routes"
_OWNERS = {kind.kind: kind for kind in (SERVICE, CONFIGURATION)}


def by_route(obj: Object) -> list[str]:
    """Index of Revisions and Configurations by the Routes written on them."""
    return [f"{namespace_of(obj)}/{name}" for name in names.routes_of(obj)]


class Labeler:
    """Keeps label routingState and annotation routes as the Routes have it."""

    def __init__(self, view: View, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        for kind in (REVISION, CONFIGURATION):
            view.informer(kind).add_index(INDEX, by_route)

    async def sync(self, route: Object) -> None:
        """Mark what the Route reaches or is about to reach; when it is settled, take the mark off the rest."""
        revisions, configurations = self._targets(route)
        key = key_of(route)
        if (condition_of(route, READY) or {}).get("status", UNKNOWN) != UNKNOWN:
            await self._remove(REVISION, key, revisions)
            await self._remove(CONFIGURATION, key, configurations)
        await self._add(REVISION, key, revisions)
        await self._add(CONFIGURATION, key, configurations)

    async def clear(self, route: Key) -> None:
        """Take the marks of a Route that is gone off everything that lives on.

        A Service marks its Configuration before it makes the Route: while the Service lives there is nothing to clear.
        """
        if self._view.get(SERVICE, route.name, route.namespace) is None:
            await self._remove(REVISION, route, ())
            await self._remove(CONFIGURATION, route, ())

    def _targets(self, route: Object) -> tuple[set[str], set[str]]:
        revisions: set[str] = set()
        configurations: set[str] = set()
        namespace = namespace_of(route)
        for target in (*((route.get("status") or {}).get("traffic") or ()), *(route["spec"].get("traffic") or ())):
            configuration = target.get("configurationName", "")
            revision = self._view.get(REVISION, target.get("revisionName", ""), namespace)
            if target.get("revisionName") and revision is None:
                continue
            if revision is not None:
                revisions.add(name_of(revision))
                configuration = (controller_of(revision) or {}).get("name", configuration)
            found = self._view.get(CONFIGURATION, configuration, namespace)
            if found is not None:
                configurations.add(name_of(found))
                latest = (found.get("status") or {}).get("latestCreatedRevisionName")
                if latest and target.get("latestRevision", not target.get("revisionName")):
                    revisions.add(latest)
        return revisions, configurations

    async def _add(self, kind: Kind, route: Key, wanted: Iterable[str]) -> None:
        for name in sorted(wanted):
            obj = self._view.get(kind, name, route.namespace)
            if obj is not None:
                await self._mark(kind, obj, sorted({*names.routes_of(obj), route.name}))

    async def _remove(self, kind: Kind, route: Key, kept: Iterable[str]) -> None:
        for obj in self._view.informer(kind).indexed(INDEX, str(route)):
            present = self._view.get(kind, name_of(obj), route.namespace)
            if name_of(obj) in kept or present is None or self._is_doomed(present):
                continue
            await self._mark(kind, present, [name for name in names.routes_of(present) if name != route.name])

    def _is_doomed(self, obj: Object) -> bool:
        """Whether garbage collection takes the object anyway, its owner being gone: a mark would be for nothing."""
        owner = controller_of(obj)
        kind = _OWNERS.get(owner["kind"]) if owner is not None else None
        if owner is None or kind is None:
            return False
        parent = self._view.get(kind, owner["name"], namespace_of(obj))
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
        await self._view.annotate(kind, obj, metadata)
