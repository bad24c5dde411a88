"""Writes statuses of ModelEvents in batches, and tracks writes that the informer does not show yet.

The tracked writes are not `clusters.runtime.own_writes`: a status counts as written from the moment that it is
enqueued, before there is an answer of the cluster to record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, Conflict, NotFound
from clusters.base.objects import MODEL_EVENT, Key, Object, key_of, name_of, namespace_of, version_of
from eventing.objects.apis import MANAGER
from eventing.objects.model_event import EventStatus, arrival_of, replay_of

log = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Concurrent writes. The embedded store commits them together; an API server has other clients."""
SHARE: Final = 0.25
"""Fraction of the time that the writes of a long list may take."""
PAUSE: Final = 1.0
"""Seconds until failed writes are retried."""
FIELDS: Final = tuple(field.encode_name for field in msgspec.structs.fields(EventStatus))

Outcome = tuple[Object, EventStatus]
"""A ModelEvent and its new status."""


class Statuses:
    """Writes the statuses of ModelEvents. `observe` must get every change of the informer.

    `write` is for statuses that must be stored before the caller continues. `enqueue` is for those that may wait until
    `run` writes them: the newest event of a storm does not wait for the statuses of older ones.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._written: dict[Key, tuple[str, EventStatus]] = {}  # resourceVersion it was written for, status
        self._queue: deque[Outcome] = deque()
        self._has_queued = asyncio.Event()

    def observe(self, before: Object | None, after: Object | None) -> None:
        """Drop the tracked write of an object once the informer shows a newer version of it."""
        obj = after if after is not None else before
        written = self._written.get(key_of(obj)) if obj is not None and self._written else None
        if obj is not None and written is not None and (after is None or written[0] != version_of(obj)):
            del self._written[key_of(obj)]

    def unwritten(self, objects: Iterable[Object]) -> list[Object]:
        """Return the objects for whose version no status was written or enqueued."""
        return [obj for obj in objects if self._tracked(obj) is None]

    def has_unseen_retry(self, objects: Iterable[Object]) -> bool:
        """Return whether a retry was written for one of the objects that the informer does not show yet."""
        return any((status := self._tracked(obj)) is not None and status.phase == "Accepted" for obj in objects)

    def _tracked(self, obj: Object) -> EventStatus | None:
        written = self._written.get(key_of(obj)) if self._written else None
        return written[1] if written is not None and written[0] == version_of(obj) else None

    async def write(self, outcomes: Sequence[Outcome]) -> None:
        """Write the statuses; deleted objects are skipped. Raises ClusterError after concurrent writes have ended.

        Writes of a long list take at most `SHARE` of the time, because new events are more urgent than old ones.
        """
        for first in range(0, len(outcomes), AT_ONCE):
            chunk = outcomes[first : first + AT_ONCE]
            began = self._clock.monotonic()
            for error in await self._write_all(chunk):
                if error is not None:
                    raise error
            if first + AT_ONCE < len(outcomes):
                await self._pause(began)

    def enqueue(self, outcomes: Iterable[Outcome]) -> None:
        """Let `run` write the statuses; they count as written from now on."""
        for obj, status in outcomes:
            self._written[key_of(obj)] = (version_of(obj), status)
            self._queue.append((obj, status))
        self._has_queued.set()

    async def run(self) -> None:
        """Write enqueued statuses until cancelled."""
        while True:
            await self._has_queued.wait()
            began = self._clock.monotonic()
            chunk = [self._queue.popleft() for _ in range(min(AT_ONCE, len(self._queue)))]
            if not self._queue:
                self._has_queued.clear()
            try:
                await self._write_queued([one for one in chunk if self._tracked(one[0]) is one[1]])  # else superseded
            except Exception:  # keeps the task alive; the next pass over the events enqueues them again
                log.exception("cannot write the status of events")
            await self._pause(began)

    async def _write_queued(self, outcomes: Sequence[Outcome]) -> None:
        """Write the statuses. After a Conflict the informer enqueues the object again; other errors are retried."""
        results = zip(outcomes, await self._write_all(outcomes), strict=True)
        failed = [(one, error) for one, error in results if error is not None and not isinstance(error, Conflict)]
        if failed:
            log.warning("cannot write the status of %d events, will retry: %s", len(failed), failed[0][1])
            self.enqueue(one for one, _ in failed if self._tracked(one[0]) is None)
            await self._clock.sleep(PAUSE)

    async def _pause(self, began: float) -> None:
        await self._clock.sleep((self._clock.monotonic() - began) * (1 - SHARE) / SHARE)

    async def _write_all(self, outcomes: Sequence[Outcome]) -> list[ClusterError | None]:
        """Write the statuses concurrently; return the error of each."""
        now = self._clock.now()
        return await asyncio.gather(*(self._write(obj, status, now) for obj, status in outcomes))

    async def _write(self, obj: Object, status: EventStatus, now: datetime) -> ClusterError | None:
        """Track the write, then send it: the watch may deliver the new version before the response arrives."""
        key, version, replay = key_of(obj), version_of(obj), replay_of(obj)
        at = max(now, replay) if replay is not None else now  # a clock that is behind would replay forever
        complete = msgspec.structs.replace(status, at=at, arrival=arrival_of(obj)).to_json()
        # In a merge patch, null removes fields of the former status.
        patch = {"metadata": {"resourceVersion": version}, "status": {name: complete.get(name) for name in FIELDS}}
        self._written[key] = (version, status)
        try:
            await self._cluster.patch(
                MODEL_EVENT, name_of(obj), patch, namespace_of(obj), manager=MANAGER, subresource="status"
            )
        except ClusterError as error:
            self._untrack(key, version)
            return None if isinstance(error, NotFound) else error
        except BaseException:
            self._untrack(key, version)
            raise
        return None

    def _untrack(self, key: Key, version: str) -> None:
        if key in self._written and self._written[key][0] == version:
            del self._written[key]
