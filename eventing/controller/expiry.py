"""ModelEvents go when they are old, and of each EventSource the least needed when there are many. What is still to be
done stays, and longest stays what keeps a copy from a second effect: one sender's flood costs no other one a record.
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
"""What goes first: a copy of an ignored event is ignored again, one of a superseded event is nearly always older."""


@dataclass(frozen=True)
class Bounds:
    """What is kept of finished events; numbers are of one EventSource, an event has some 8 kB in memory when embedded.

    `lifetime`: after the phase was reached: as long as people look for a training. A copy that comes later is older
    than the newest applied event, or out of its signature's tolerance. `most`: in number, but for failed ones, which
    people may replay: `failed`. `recent`: twice the tolerance of signatures: for so long, beyond `most` too, stays what
    is not ignored, since a copy may come that only its record tells from a new event; for all its life what a job
    brought, since jobs are looked for anew at each start of a webhook. `cap`: nothing stays beyond it. `slack`: how far
    the number of all events may grow before they are looked at, so that not each costs a deletion.
    """

    lifetime: timedelta = timedelta(days=7)
    most: int = 20_000
    failed: int = 5_000
    recent: timedelta = timedelta(minutes=10)
    cap: int = 50_000
    slack: int = 1_000


DEFAULTS: Final = Bounds()
SLACK_SHARE: Final = 8
"""The slack is an eighth of the number at least: a look goes over all of them."""
PERIOD: Final = 60.0
"""s between looks at the age."""
PAUSE: Final = 1.0
"""s after each deletion of old ones: a storm of events that nothing is done with yet is no reason to look again."""
AT_ONCE: Final = 64
"""Deletions under way together: embedded, they share commits."""


class ModelEventExpiry:
    """Deletes finished ModelEvents. Make it before the informer runs."""

    def __init__(
        self,
        cluster: Cluster,
        informer: Informer,
        clock: Clock,
        bounds: Bounds = DEFAULTS,
    ) -> None:
        self._cluster = cluster
        self._informer = informer
        self._clock = clock
        self._bounds = bounds
        self._enough = bounds.most + bounds.slack
        self._crowded = asyncio.Event()
        informer.subscribe(self._observe)

    async def run(self) -> None:
        """Expire until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._in_time(), name="model event age")
            group.create_task(self._in_crowds(), name="model event number")

    async def expire(self) -> None:
        """Delete what is too old or too much now. Raises ClusterError when that cannot be done."""
        number = len(self._informer)
        victims = victims_of((obj for obj in self._informer if not is_pending(obj)), self._clock.now(), self._bounds)
        left = max(number - len(victims), self._bounds.most)
        self._enough = left + max(self._bounds.slack, left // SLACK_SHARE)
        for first in range(0, len(victims), AT_ONCE):
            await self._delete(victims[first : first + AT_ONCE])

    def _observe(self, _before: Object | None, _after: Object | None) -> None:
        if len(self._informer) > self._enough:
            self._crowded.set()

    async def _in_time(self) -> None:
        while True:
            await self._clock.sleep(PERIOD)
            self._crowded.set()

    async def _in_crowds(self) -> None:
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            try:
                await self.expire()
            except ClusterError as error:
                log.warning("old events cannot be deleted now: %s", error)
            await self._clock.sleep(PAUSE)

    async def _delete(self, objects: Sequence[Object]) -> None:
        await asyncio.gather(*map(self._delete_one, objects))

    async def _delete_one(self, obj: Object) -> None:
        with suppress(NotFound, Conflict):  # it is gone, or somebody wants it replayed
            await self._cluster.delete(
                MODEL_EVENT, name_of(obj), namespace_of(obj), uid=uid_of(obj), resource_version=version_of(obj)
            )


def victims_of(finished: Iterable[Object], now: datetime, bounds: Bounds) -> list[Object]:
    """Which of the finished events go."""
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


def _surplus(crowd: Sequence[Object], recent: str, bounds: Bounds) -> list[Object]:
    """What goes of one EventSource's that did not fail."""

    def need(obj: Object) -> tuple[bool, int, str]:
        rank = RANKS.index(_phase(obj)) if _phase(obj) in RANKS else 0
        is_job = (obj.get("spec") or {}).get("source") == JOBS
        return rank > 0 and (is_job or _reached(obj) >= recent), rank, _reached(obj)

    free = sum(not need(obj)[0] for obj in crowd)
    return nsmallest(max(min(len(crowd) - bounds.most, free), len(crowd) - bounds.cap), crowd, key=need)


def _phase(obj: Object) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


def _reached(obj: Object) -> str:
    """When its phase was reached, as a text: RFC 3339 in UTC sorts as the times do, to the second."""
    return str((obj.get("status") or {}).get("at") or obj["metadata"]["creationTimestamp"])
