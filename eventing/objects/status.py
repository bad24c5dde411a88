"""Writes what became of ModelEvents, many at a time, and remembers what its informer does not show yet."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, Conflict, NotFound
from clusters.base.objects import MODEL_EVENT, Key, Object, key_of, name_of, namespace_of, version_of
from eventing.objects.apis import MANAGER
from eventing.objects.model_event import Status, arrival_of, replay_of

log = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Writes under way together: the embedded store commits them together, and an API server has other callers."""
SHARE: Final = 0.25
"""Of the time that the writes of a long list take."""
PAUSE: Final = 1.0
"""s until what could not be written is tried again."""
FIELDS: Final = tuple(field.encode_name for field in msgspec.structs.fields(Status))

Outcome = tuple[Object, Status]
"""A ModelEvent and what became of it."""


class Statuses:
    """The statuses of ModelEvents. `observe` is to hear every change that the informer sees.

    What has to be written before anything else happens is settled; what may wait is left to `run`: the newest event of
    a storm does not wait for the book-keeping of the old ones.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._written: dict[Key, tuple[str, Status]] = {}
        self._left: deque[Outcome] = deque()
        self._more = asyncio.Event()

    def observe(self, before: Object | None, after: Object | None) -> None:
        """The informer went on: what it shows now tells by itself what was written."""
        obj = after if after is not None else before
        written = self._written.get(key_of(obj)) if obj is not None and self._written else None
        if obj is not None and written is not None and (after is None or written[0] != version_of(obj)):
            del self._written[key_of(obj)]

    def unsettled(self, objects: Iterable[Object]) -> list[Object]:
        """Those of which nothing was written, or is going to be, since the state that they are in."""
        return [obj for obj in objects if self._of(obj) is None]

    def is_ahead(self, objects: Iterable[Object]) -> bool:
        """Whether one of them is to be tried again, which its informer does not show yet."""
        return any((status := self._of(obj)) is not None and status.phase == "Accepted" for obj in objects)

    def _of(self, obj: Object) -> Status | None:
        written = self._written.get(key_of(obj)) if self._written else None
        return written[1] if written is not None and written[0] == version_of(obj) else None

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Write them; one that is gone is passed over. Raises ClusterError, after those under way with it are written.

        Of many, the writes have `SHARE` of the time: what became of old events is not as urgent as new ones.
        """
        for first in range(0, len(outcomes), AT_ONCE):
            chunk = outcomes[first : first + AT_ONCE]
            began = self._clock.monotonic()
            for answer in await self._write_all(chunk):
                if answer is not None:
                    raise answer
            if first + AT_ONCE < len(outcomes):
                await self._rest(began)

    def leave(self, outcomes: Iterable[Outcome]) -> None:
        """Let `run` write them; until then they count as settled."""
        for obj, status in outcomes:
            self._written[key_of(obj)] = (version_of(obj), status)
            self._left.append((obj, status))
        self._more.set()

    async def run(self) -> None:
        """Write what was left, until cancelled."""
        while True:
            await self._more.wait()
            began = self._clock.monotonic()
            chunk = [self._left.popleft() for _ in range(min(AT_ONCE, len(self._left)))]
            if not self._left:
                self._more.clear()
            try:
                await self._write_left([one for one in chunk if self._of(one[0]) is one[1]])  # else it has changed
            except Exception:  # the frame: the next pass over them leaves them again
                log.exception("the status of events is not written")
            await self._rest(began)

    async def _write_left(self, outcomes: Sequence[Outcome]) -> None:
        """Of one that met another version its informer tells soon; whatever else is wrong may get better."""
        answers = zip(outcomes, await self._write_all(outcomes), strict=True)
        failed = [(one, error) for one, error in answers if error is not None and not isinstance(error, Conflict)]
        if failed:
            log.warning("the status of %d events cannot be written now: %s", len(failed), failed[0][1])
            self.leave(one for one, _ in failed if self._of(one[0]) is None)
            await self._clock.sleep(PAUSE)

    async def _rest(self, began: float) -> None:
        await self._clock.sleep((self._clock.monotonic() - began) * (1 - SHARE) / SHARE)

    async def _write_all(self, outcomes: Sequence[Outcome]) -> list[ClusterError | None]:
        """What went wrong with each."""
        now = self._clock.now()
        return await asyncio.gather(*(self._write(obj, status, now) for obj, status in outcomes))

    async def _write(self, obj: Object, status: Status, now: datetime) -> ClusterError | None:
        """Remembered before it is written: a watch may tell of it earlier than the answer does."""
        key, version, replay = key_of(obj), version_of(obj), replay_of(obj)
        at = max(now, replay) if replay is not None else now  # a clock that is behind would replay for ever
        told = msgspec.structs.replace(status, at=at, arrival=arrival_of(obj))
        patch = {"metadata": {"resourceVersion": version}, "status": _whole(told)}
        self._written[key] = (version, status)
        try:
            await self._cluster.patch(
                MODEL_EVENT, name_of(obj), patch, namespace_of(obj), manager=MANAGER, subresource="status"
            )
        except ClusterError as error:
            self._forget(key, version)
            return None if isinstance(error, NotFound) else error
        except BaseException:
            self._forget(key, version)
            raise
        return None

    def _forget(self, key: Key, version: str) -> None:
        if key in self._written and self._written[key][0] == version:
            del self._written[key]


def _whole(status: Status) -> dict[str, Any]:
    """The status for a merge patch: what is empty takes away what was there."""
    said = status.to_json()
    return {name: said.get(name) for name in FIELDS}
