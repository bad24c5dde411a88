"""Delete objects on behalf of the cluster's own controllers, with retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import Conflict, NotFound, Unavailable
from clusters.base.objects import KINDS, Kind, Object, key_of, name_of, namespace_of, uid_of

log = logging.getLogger(__name__)

RETRY_AFTER = 1.0
"""Seconds until a failed write is retried."""
CONCURRENT_DELETIONS = 64
"""Concurrent deletions share commits of the store."""

_KINDS = {kind.resource: kind for kind in KINDS}


class ObjectDeleter:
    """Delete objects by uid."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def delete(self, kind: Kind, obj: Object) -> None:
        """Delete exactly this object. One that was deleted or replaced meanwhile is ignored."""
        while True:
            try:
                await self._cluster.delete(kind, name_of(obj), namespace_of(obj), uid=uid_of(obj))
                return
            except (NotFound, Conflict):
                return
            except Unavailable as error:
                log.warning("cannot delete %s %s, retrying in %.0f s: %s", kind, key_of(obj), RETRY_AFTER, error)
                await self.pause()

    async def pause(self) -> None:
        """Wait before a failed write is retried."""
        await self._clock.sleep(RETRY_AFTER)

    async def delete_all(self, objects: Iterable[tuple[Kind, Object]]) -> None:
        """Delete objects, `CONCURRENT_DELETIONS` at a time."""
        pending = list(objects)
        for start in range(0, len(pending), CONCURRENT_DELETIONS):
            batch = pending[start : start + CONCURRENT_DELETIONS]
            await asyncio.gather(*(self.delete(kind, obj) for kind, obj in batch))


def kind_of(resource: str, obj: Object) -> Kind:
    """Return the kind of a stored object, also of a kind that is not built in."""
    known = _KINDS.get(resource)
    if known is not None:
        return known
    plural, _, group = resource.partition(".")
    return Kind(group, str(obj["apiVersion"]).rpartition("/")[2], obj["kind"], plural, bool(namespace_of(obj)))
