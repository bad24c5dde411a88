"""The hold queues of all revisions, by key: the door of `throttle` for the request path and for the control connection.

A revision that nobody spoke of yet is waited for shortly (`UNKNOWN_PATIENCE`): after a restart of this process requests
may be faster than the control plane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusters.base.clock import Clock
from clusters.base.objects import Key
from clusters.embedded.activator.proxy.errors import UnknownRevision
from clusters.embedded.activator.throttle import Changed, RevisionThrottle
from clusters.embedded.activator.wire import Load, Target

UNKNOWN_PATIENCE = 1.0  # s; after a restart the control plane says all targets again within this time
UNKNOWN_LIMIT = 1000  # requests that wait for a revision to become known, all revisions together; Knodel's holdQueue


@dataclass(slots=True)
class _Arrival:
    """A revision that requests wait to hear of."""

    known: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


class Throttler:
    """All revisions."""

    def __init__(self, changed: Changed, clock: Clock) -> None:
        self._changed = changed
        self._clock = clock
        self._revisions: dict[Key, RevisionThrottle] = {}
        self._arrivals: dict[Key, _Arrival] = {}
        self._strangers = 0

    def __iter__(self) -> Iterator[Key]:
        return iter(self._revisions)

    def set_target(self, target: Target) -> None:
        """Put `target` in force before this returns."""
        revision = self._revisions.get(target.key)
        if revision is None:
            self._revisions[target.key] = RevisionThrottle(target, self._changed, self._clock)
        else:
            revision.retarget(target)
        if target.key in self._arrivals:
            self._arrivals[target.key].known.set()

    def remove_target(self, key: Key) -> None:
        """Forget the revision; whoever waits for it is told so."""
        revision = self._revisions.pop(key, None)
        if revision is not None:
            revision.dismiss()

    def load(self, key: Key) -> Load:
        """Who waits for, and who is served by, this revision; zero when unknown."""
        revision = self._revisions.get(key)
        return Load() if revision is None else revision.load

    def has_endpoints(self, key: Key) -> bool:
        """Whether the revision has any endpoint."""
        revision = self._revisions.get(key)
        return revision is not None and revision.has_endpoints

    async def revision(self, key: Key) -> RevisionThrottle:
        """The revision's queue. Raises UnknownRevision when nobody speaks of it within `UNKNOWN_PATIENCE`."""
        known = self._revisions.get(key)
        return known if known is not None else await self._arrival(key)

    async def _arrival(self, key: Key) -> RevisionThrottle:
        if self._strangers >= UNKNOWN_LIMIT:
            raise UnknownRevision(f"revision {key} is not known, and {self._strangers} requests wait for such already")
        arrival = self._arrivals.setdefault(key, _Arrival())
        arrival.waiting += 1
        self._strangers += 1
        try:
            async with asyncio.timeout(UNKNOWN_PATIENCE):
                await arrival.known.wait()
            return self._revisions[key]
        except (TimeoutError, KeyError) as error:
            raise UnknownRevision(f"revision {key} is not known") from error
        finally:
            self._strangers -= 1
            arrival.waiting -= 1
            if not arrival.waiting:
                del self._arrivals[key]
