"""Events go after an hour, and beyond a number: they are news, not state."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from clusters.base.clock import Clock
from clusters.base.objects import EVENT, Object, parse_timestamp
from clusters.embedded.store.history import Change
from clusters.embedded.store.store import Store
from clusters.embedded.workloads.reaper import Reaper

LIFETIME = timedelta(hours=1)
"""Kubernetes' default `--event-ttl`, counted from when the Event happened last."""
MOST = 1000
"""Events kept at all; the oldest go first. Memory: some 3 kB each."""
SLACK = 100
"""How far above `MOST` a burst may go before it is cut at once, so that not each Event costs a deletion."""
PERIOD = 60.0
"""s between looks at the age."""


class EventExpiry:
    """Deletes old Events."""

    def __init__(self, store: Store, reaper: Reaper, clock: Clock) -> None:
        self._store = store
        self._reaper = reaper
        self._clock = clock
        self._crowded = asyncio.Event()
        store.subscribe(self._observe)

    async def run(self) -> None:
        """Expire until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._expire_in_time(), name="event age")
            group.create_task(self._expire_in_crowds(), name="event number")

    def _observe(self, change: Change) -> None:
        if change.kind.resource == EVENT.resource and len(self._store.of_kind(EVENT)) > MOST + SLACK:
            self._crowded.set()

    async def _expire_in_time(self) -> None:
        while True:
            await self._expire()
            await self._clock.sleep(PERIOD)

    async def _expire_in_crowds(self) -> None:
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            await self._expire()

    async def _expire(self) -> None:
        events = sorted(self._store.of_kind(EVENT).values(), key=_last_seen)
        oldest = self._clock.now() - LIFETIME
        surplus = max(len(events) - MOST, 0)
        await self._reaper.delete_all(
            (EVENT, event) for index, event in enumerate(events) if index < surplus or _last_seen(event) < oldest
        )


def _last_seen(event: Object) -> datetime:
    """When it happened last; an Event with an unreadable time is as old as its object."""
    for text in (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"]["creationTimestamp"]):
        try:
            at = parse_timestamp(text) if isinstance(text, str) else None
        except ValueError:
            at = None
        if at is not None:
            return at if at.tzinfo else at.replace(tzinfo=UTC)
    return datetime.min.replace(tzinfo=UTC)
