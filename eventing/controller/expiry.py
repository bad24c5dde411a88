"""Deletes finished ModelEvents when they are old, or when an EventSource has too many of them.

Pending events are never deleted. Among finished ones, those that protect best against duplicates are kept longest.
Limits are per EventSource, so that a flood from one sender does not delete the records of others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, Conflict, NotFound
from clusters.base.objects import MODEL_EVENT, Object, labels_of, name_of, namespace_of, timestamp, uid_of, version_of
from clusters.runtime.informer import Informer
from eventing.mapping.jobs import SOURCE as JOBS
from eventing.objects.apis import LABEL_EVENT_SOURCE
from eventing.objects.model_event import is_pending

log = logging.getLogger(__name__)

RANKS: Final = ("Ignored", "Superseded", "Applied")
"""Phases in the order of deletion: a duplicate of an ignored event is ignored again, and one of a superseded event is
nearly always older than the newest applied event."""


@dataclass(frozen=True)
class RetentionLimits:
    """Limits on finished events. Numbers are per EventSource; an event takes about 8 kB in memory when embedded.

    `lifetime`: time since the phase was reached. A duplicate that comes later is older than the newest applied event,
    or beyond its signature's tolerance. `most`: maximum number, except failed events, which users may replay; those
    have `failed`. `recent`: twice the tolerance of signatures. Events that are not ignored are kept for that long
    beyond `most` too, because only their record identifies a duplicate. Events from jobs are kept for their whole
    lifetime, because a webhook lists jobs at each start. `cap`: hard limit on the number. `slack`: how far the number
    of all events may grow before it is reduced, so that not every new event causes a deletion.
    """

    lifetime: timedelta = timedelta(days=7)
    most: int = 20_000
    failed: int = 5_000
    recent: timedelta = timedelta(minutes=10)
    cap: int = 50_000
    slack: int = 1_000


DEFAULTS: Final = RetentionLimits()
SLACK_SHARE: Final = 8
"""The slack is at least an eighth of the number, because a pass iterates over all events."""
PERIOD: Final = 60.0
"""Seconds between passes for the age of events."""
PAUSE: Final = 1.0
"""Minimum seconds between two passes: during a storm of pending events, more passes would delete nothing."""
AT_ONCE: Final = 64
"""Concurrent deletions; the embedded store commits them together."""


class ModelEventExpiry:
    """Deletes finished ModelEvents. Create it before the informer runs."""

    def __init__(
        self,
        cluster: Cluster,
        informer: Informer,
        clock: Clock,
        bounds: RetentionLimits = DEFAULTS,
    ) -> None:
        self._cluster = cluster
        self._informer = informer
        self._clock = clock
        self._bounds = bounds
        self._enough = bounds.most + bounds.slack
        self._crowded = asyncio.Event()
        informer.subscribe(self._observe)

    async def run(self) -> None:
        """Delete events periodically and when there are too many, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._notify_periodically(), name="model event age")
            group.create_task(self._expire_when_notified(), name="model event number")

    async def expire(self) -> None:
        """Delete events that are too old or too many. Raises ClusterError if a deletion fails."""
        number = len(self._informer)
        victims = victims_of((obj for obj in self._informer if not is_pending(obj)), self._clock.now(), self._bounds)
        left = max(number - len(victims), self._bounds.most)
        self._enough = left + max(self._bounds.slack, left // SLACK_SHARE)
        for first in range(0, len(victims), AT_ONCE):
            await asyncio.gather(*map(self._delete, victims[first : first + AT_ONCE]))

    def _observe(self, _before: Object | None, _after: Object | None) -> None:
        if len(self._informer) > self._enough:
            self._crowded.set()

    async def _notify_periodically(self) -> None:
        while True:
            await self._clock.sleep(PERIOD)
            self._crowded.set()

    async def _expire_when_notified(self) -> None:
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            try:
                await self.expire()
            except ClusterError as error:
                log.warning("cannot delete old events, will retry: %s", error)
            await self._clock.sleep(PAUSE)

    async def _delete(self, obj: Object) -> None:
        with suppress(NotFound, Conflict):  # deleted meanwhile, or a replay was requested
            await self._cluster.delete(
                MODEL_EVENT, name_of(obj), namespace_of(obj), uid=uid_of(obj), resource_version=version_of(obj)
            )


def victims_of(finished: Iterable[Object], now: datetime, bounds: RetentionLimits) -> list[Object]:
    """Return the finished events that are to be deleted."""
    crowds: dict[tuple[str, str, bool], list[Object]] = {}
    oldest = timestamp(now - bounds.lifetime)
    victims = []
    for obj in finished:
        if _reached(obj) < oldest:
            victims.append(obj)
        else:
            sender = labels_of(obj).get(LABEL_EVENT_SOURCE, "")
            crowds.setdefault((namespace_of(obj), sender, _phase(obj) == "Failed"), []).append(obj)
    for (_, _, failed), crowd in crowds.items():
        if failed:
            victims += nsmallest(len(crowd) - bounds.failed, crowd, key=_reached)
        elif len(crowd) > bounds.most:
            victims += _surplus(crowd, timestamp(now - bounds.recent), bounds)
    return victims


def _surplus(crowd: Sequence[Object], recent: str, bounds: RetentionLimits) -> list[Object]:
    """Return the events of one EventSource to delete, of those that did not fail."""

    def need(obj: Object) -> tuple[bool, int, str]:
        """Return a sort key, lowest first to delete."""
        rank = RANKS.index(_phase(obj)) if _phase(obj) in RANKS else 0
        is_job = (obj.get("spec") or {}).get("source") == JOBS
        return rank > 0 and (is_job or _reached(obj) >= recent), rank, _reached(obj)

    free = sum(not need(obj)[0] for obj in crowd)
    return nsmallest(max(min(len(crowd) - bounds.most, free), len(crowd) - bounds.cap), crowd, key=need)


def _phase(obj: Object) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


def _reached(obj: Object) -> str:
    """Return the time of the event's phase as text: RFC 3339 in UTC sorts chronologically, to the second."""
    return str((obj.get("status") or {}).get("at") or obj["metadata"]["creationTimestamp"])
