"""The hold queue of one revision: who waits, which endpoint has room, who goes next.

Named after Knative's `pkg/activator/net/throttler.go`. One event loop, no lock. Rules, each with a test:

1. A request goes on at once when nobody waits before it and some endpoint has room; else it waits its turn (FIFO).
2. An endpoint has room below `slots_per_endpoint` requests of ours (0: always); the least loaded goes first, of equals
   the one that was given a request the longest ago.
3. `hold_limit` requests may wait; the next is refused (`HoldQueueFull`). None waits longer than `timeout` from its
   arrival (`HoldExpired`).
4. An endpoint that refuses a connection is set aside for a moment that doubles; its request keeps its place in front.
5. Nobody waits for a revision whose replicas all failed to start (`StartFailed`); the next start may succeed.
6. An endpoint no longer named gets no new request from the moment of `set_target`; what runs on it finishes, and still
   counts when the endpoint is named again before that.
7. The first request to an endpoint waits until a probe has found that it has its model, and so do all others that come
   meanwhile; they count as waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import KnodelError
from clusters.base.objects import Key
from clusters.embedded.activator.proxy.errors import HoldExpired, HoldQueueFull, StartFailed, UnknownRevision
from clusters.embedded.activator.proxy.probe import Probed
from clusters.embedded.activator.ticket import Ticket
from clusters.embedded.activator.wire import Load, Target
from clusters.net.endpoints import Endpoint

FIRST_ASIDE = 0.05  # s; a server between bind and listen, or just killed
LARGEST_ASIDE = 1.0  # s; by then the kubelet's probe has seen what is wrong and the endpoint is taken away
_BACKOFF = Backoff(FIRST_ASIDE, LARGEST_ASIDE)

Probe = Callable[[Endpoint], Coroutine[Any, Any, Probed]]
"""Returns what it found, and raises nothing."""

Changed = Callable[[Key], None]
"""Told of every change of a revision's load."""


@dataclass(slots=True)
class _Place:
    """An endpoint and what we have there. `since`: when it was first named; `used`: turn of its last request.

    `probe`: its only one, as long as it found no fault.
    """

    endpoint: Endpoint
    since: float
    active: int = 0
    used: int = 0
    refusals: int = 0
    aside: bool = False
    probe: asyncio.Task[Probed] | None = None


class Lease:
    """Room for one request at one endpoint, until `release`."""

    __slots__ = ("_owner", "_place")

    def __init__(self, owner: RevisionThrottle, place: _Place) -> None:
        self._owner: RevisionThrottle | None = owner
        self._place = place

    @property
    def endpoint(self) -> Endpoint:
        """Where to send the request."""
        return self._place.endpoint

    @property
    def endpoint_since(self) -> float:
        """When the endpoint was first named, in seconds of the clock."""
        return self._place.since

    async def probed(self, probe: Probe) -> Probed:
        """What the endpoint's probe found, or finds now; cancelled, the probe goes on for others."""
        place = self._place
        if place.probe is None:
            place.probe = asyncio.ensure_future(probe(place.endpoint))
        if place.probe.done():
            return place.probe.result()
        if self._owner is None:
            return await asyncio.shield(place.probe)
        with self._owner._unproven():
            return await asyncio.shield(place.probe)

    def accepted(self) -> None:
        """The endpoint took the connection."""
        self._place.refusals = 0

    def refused(self, ticket: Ticket) -> None:
        """The endpoint refused the connection: give the room back and leave the endpoint alone for a moment."""
        ticket.refused = True
        self._place.probe = None
        if self._owner is not None:
            self._owner._set_aside(self._place)
            self.release()

    def release(self) -> None:
        """Give the room back; a second call does nothing."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner._release(self._place)


@dataclass(slots=True, eq=False)
class _Waiter:
    granted: asyncio.Future[Lease]
    timer: asyncio.TimerHandle


class RevisionThrottle:
    """The queue and the endpoints of one revision."""

    def __init__(self, target: Target, changed: Changed, clock: Clock) -> None:
        self.target = target
        self._changed = changed
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._places: list[_Place] = []
        self._leaving: list[_Place] = []
        self._waiting: deque[_Waiter] = deque()
        self._active = 0
        self._probing = 0
        self._turn = 0
        self._dismissed = False
        self.retarget(target)

    @property
    def load(self) -> Load:
        """Who waits, and who is being served."""
        return Load(len(self._waiting) + self._probing, self._active - self._probing)

    @property
    def _removed(self) -> str:
        return f"revision {self.target.key} was removed"

    @property
    def _cannot_start(self) -> str:
        return f"revision {self.target.key} cannot start: its Model's status says why"

    @property
    def _is_broken(self) -> bool:
        return self.target.broken and not self._places

    @property
    def has_endpoints(self) -> bool:
        """Whether any endpoint is named."""
        return bool(self._places)

    def retarget(self, target: Target) -> None:
        """Put `target` in force at once; endpoints that stay, or come back, keep their counts."""
        now = self._clock.monotonic()
        known = {place.endpoint: place for place in self._places}
        back = {place.endpoint: place for place in self._leaving}
        for place in back.values():
            place.since, place.probe = now, None  # it may have been restarted meanwhile
        known = back | known
        self.target = target
        self._places = [known.get(endpoint) or _Place(endpoint, now) for endpoint in target.endpoints]
        named = set(target.endpoints)
        self._leaving = [place for place in known.values() if place.active and place.endpoint not in named]
        self._pump()
        if self._is_broken:
            self._fail_all(StartFailed, self._cannot_start)

    def dismiss(self) -> None:
        """The revision is gone: nobody waits for it any more. What runs on its endpoints finishes."""
        self._dismissed = True
        self._places = []
        self._fail_all(UnknownRevision, self._removed)

    def arrive(self, at: float) -> Ticket:
        """A request came in at this moment of the clock."""
        return Ticket(at, at + self.target.timeout, first=not self._places and not self._waiting)

    async def lease(self, ticket: Ticket) -> Lease:
        """Room for the request: at once, or when its turn comes.

        Raises HoldQueueFull, HoldExpired, StartFailed, UnknownRevision (removed meanwhile). Cancelled: as if it had
        never come.
        """
        if self._dismissed:
            raise UnknownRevision(self._removed)
        if self._is_broken:
            raise StartFailed(self._cannot_start)
        place = self._pick() if not self._waiting else None
        if place is not None:
            return self._grant(place)
        if not ticket.refused and len(self._waiting) >= self.target.hold_limit:
            raise HoldQueueFull(f"{len(self._waiting)} requests wait for revision {self.target.key} already")
        return await self._wait(ticket)

    async def _wait(self, ticket: Ticket) -> Lease:
        granted: asyncio.Future[Lease] = self._loop.create_future()
        waiter = _Waiter(granted, self._expire_at(ticket.deadline, granted))
        if ticket.refused:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        ticket.held = True
        self._changed(self.target.key)
        try:
            return await granted
        except asyncio.CancelledError:
            self._leave(waiter)
            raise
        finally:
            waiter.timer.cancel()

    def _expire_at(self, deadline: float, granted: asyncio.Future[Lease]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(0.0, deadline - self._clock.monotonic()), self._expire, granted)

    def _leave(self, waiter: _Waiter) -> None:
        """The caller went away, perhaps in the moment in which its turn came."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            self._changed(self.target.key)
        elif not waiter.granted.cancelled() and waiter.granted.exception() is None:
            waiter.granted.result().release()

    def _expire(self, granted: asyncio.Future[Lease]) -> None:
        for waiter in self._waiting:
            if waiter.granted is granted:
                text = f"revision {self.target.key} had no capacity within {self.target.timeout:g} s"
                self._fail(waiter, HoldExpired(text))
                return

    def _fail_all(self, error: type[KnodelError], message: str) -> None:
        for waiter in list(self._waiting):
            self._fail(waiter, error(message))

    def _fail(self, waiter: _Waiter, error: KnodelError) -> None:
        self._waiting.remove(waiter)
        if not waiter.granted.done():
            waiter.granted.set_exception(error)
        self._changed(self.target.key)

    def _pump(self) -> None:
        """Give room to whoever waits, first come first served."""
        while self._waiting:
            if self._waiting[0].granted.done():  # cancelled in this very turn of the loop; `_leave` would come too late
                self._waiting.popleft()
                self._changed(self.target.key)
                continue
            place = self._pick()
            if place is None:
                return
            self._waiting.popleft().granted.set_result(self._grant(place))

    def _pick(self) -> _Place | None:
        slots = self.target.slots_per_endpoint
        best: _Place | None = None
        for place in self._places:
            if place.aside or (slots and place.active >= slots):
                continue
            if best is None or (place.active, place.used) < (best.active, best.used):
                best = place
        return best

    def _grant(self, place: _Place) -> Lease:
        self._turn += 1
        place.used = self._turn
        place.active += 1
        self._active += 1
        self._changed(self.target.key)
        return Lease(self, place)

    @contextlib.contextmanager
    def _unproven(self) -> Iterator[None]:
        """A request has room at an endpoint, and waits for its probe."""
        self._probing += 1
        self._changed(self.target.key)
        try:
            yield
        finally:
            self._probing -= 1
            self._changed(self.target.key)

    def _release(self, place: _Place) -> None:
        place.active -= 1
        self._active -= 1
        if not place.active and place in self._leaving:
            self._leaving.remove(place)
        self._pump()
        self._changed(self.target.key)

    def _set_aside(self, place: _Place) -> None:
        if place.aside:
            return
        place.aside = True
        place.refusals += 1
        self._loop.call_later(_BACKOFF.delay(place.refusals - 1), self._bring_back, place)

    def _bring_back(self, place: _Place) -> None:
        place.aside = False
        self._pump()
