"""Delete Events after their time to live, and the oldest ones above a maximum number."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from clusters.base.clock import Clock
from clusters.base.objects import EVENT, Object, parse_timestamp
from clusters.embedded.store.history import ObjectChange
from clusters.embedded.store.store import Store
from clusters.embedded.workloads.object_deleter import ObjectDeleter

EVENT_TTL = timedelta(hours=1)
"""Default of `--event-ttl` in Kubernetes. It begins with the last occurrence of the Event."""
MAX_EVENTS = 1000
"""Maximum number of Events. Each takes about 3 kB of memory."""
SLACK = 100
"""Events above `MAX_EVENTS` that trigger an immediate pass. Without slack each new Event would cause a deletion."""
PERIOD = 60.0
"""Seconds between checks of the age."""


class EventTTLController:
    """Delete expired and surplus Events."""

    def __init__(self, store: Store, deleter: ObjectDeleter, clock: Clock) -> None:
        self._store = store
        self._deleter = deleter
        self._clock = clock
        self._surplus = asyncio.Event()
        store.subscribe(self._on_change)

    async def run(self) -> None:
        """Delete Events periodically, and when there are too many, until cancelled."""

        async def run_periodically() -> None:
            while True:
                await self._delete_expired()
                await self._clock.sleep(PERIOD)

        async def run_on_surplus() -> None:
            while True:
                await self._surplus.wait()
                self._surplus.clear()
                await self._delete_expired()

        async with asyncio.TaskGroup() as group:
            group.create_task(run_periodically(), name="event TTL")
            group.create_task(run_on_surplus(), name="event maximum")

    def _on_change(self, change: ObjectChange) -> None:
        if change.kind.resource == EVENT.resource and len(self._store.of_kind(EVENT)) > MAX_EVENTS + SLACK:
            self._surplus.set()

    async def _delete_expired(self) -> None:
        events = sorted(self._store.of_kind(EVENT).values(), key=_last_occurrence)
        oldest = self._clock.now() - EVENT_TTL
        surplus = max(len(events) - MAX_EVENTS, 0)
        await self._deleter.delete_all(
            (EVENT, event) for index, event in enumerate(events) if index < surplus or _last_occurrence(event) < oldest
        )


def _last_occurrence(event: Object) -> datetime:
    """Return the time of the last occurrence, or of the creation if the Event has no valid time."""
    for text in (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"]["creationTimestamp"]):
        try:
            at = parse_timestamp(text) if isinstance(text, str) else None
        except ValueError:
            at = None
        if at is not None:
            return at if at.tzinfo else at.replace(tzinfo=UTC)
    return datetime.min.replace(tzinfo=UTC)
