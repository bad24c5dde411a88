"""Deletions that the cluster makes by itself: of exactly the object that was meant, tried until they are written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import Conflict, NotFound, Unavailable
from clusters.base.objects import KINDS, Kind, Object, key_of, name_of, namespace_of, uid_of

log = logging.getLogger(__name__)

RETRY = 1.0
"""s until a deletion that could not be written is tried again."""
AT_ONCE = 64
"""Deletions under way together: they share commits."""

_KINDS = {kind.resource: kind for kind in KINDS}


class Reaper:
    """Deletes objects by uid."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def delete(self, kind: Kind, obj: Object) -> None:
        """Ask for the deletion of this very object; no error when it is gone or replaced."""
        while True:
            try:
                await self._cluster.delete(kind, name_of(obj), namespace_of(obj), uid=uid_of(obj))
                return
            except (NotFound, Conflict):
                return
            except Unavailable as error:
                log.warning("cannot delete %s %s (%s): again in %.0f s", kind, key_of(obj), error, RETRY)
                await self.pause()

    async def pause(self) -> None:
        """Wait before a write that failed is tried again."""
        await self._clock.sleep(RETRY)

    async def delete_all(self, victims: Iterable[tuple[Kind, Object]]) -> None:
        """Delete them together, `AT_ONCE` at a time."""
        waiting = list(victims)
        for start in range(0, len(waiting), AT_ONCE):
            await asyncio.gather(*(self.delete(kind, obj) for kind, obj in waiting[start : start + AT_ONCE]))


def kind_of(resource: str, obj: Object) -> Kind:
    """The kind of a stored object, also of one that only an extension knows."""
    known = _KINDS.get(resource)
    if known is not None:
        return known
    plural, _, group = resource.partition(".")
    return Kind(group, str(obj["apiVersion"]).rpartition("/")[2], obj["kind"], plural, bool(namespace_of(obj)))
