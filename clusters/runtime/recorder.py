"""Record Kubernetes Events about objects, for `describe`; equal Events are counted in one object."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Literal

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import AlreadyExists, NotFound
from clusters.base.objects import EVENT, Kind, Object, name_of, namespace_of, timestamp, uid_of

EventType = Literal["Normal", "Warning"]


class Recorder:
    """A writer of Events about objects for one component."""

    def __init__(self, cluster: Cluster, component: str, clock: Clock) -> None:
        self._cluster = cluster
        self._component = component
        self._clock = clock

    async def event(self, kind: Kind, about: Object, type: EventType, reason: str, message: str) -> None:
        """Record an Event, or increment the count of one with the same object, type, reason and message.

        Raises the errors of the cluster.
        """
        namespace = namespace_of(about) or "default"
        words = "\0".join((kind.kind, uid_of(about), type, reason, message))
        name = f"{name_of(about)[:200].rstrip('-.')}.{hashlib.sha256(words.encode()).hexdigest()[:16]}"
        now = timestamp(self._clock.now())
        try:
            known = await self._cluster.get(EVENT, name, namespace)
            patch = {"count": int(known.get("count", 1)) + 1, "lastTimestamp": now}
            await self._cluster.patch(EVENT, name, patch, namespace, manager=self._component)
        except NotFound:
            fresh = self._make(kind, about, type, reason, message)
            fresh["metadata"] = {"name": name, "namespace": namespace}
            fresh |= {"firstTimestamp": now, "lastTimestamp": now, "count": 1}
            with contextlib.suppress(AlreadyExists):  # an equal Event was created just now
                await self._cluster.create(EVENT, fresh, manager=self._component)

    def _make(self, kind: Kind, about: Object, type: EventType, reason: str, message: str) -> Object:
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": name_of(about),
                "namespace": namespace_of(about),
                "uid": uid_of(about),
            },
            "type": type,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
        }
