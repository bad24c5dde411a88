"""Queues of requests by revision: limit concurrency at each endpoint, and hold requests until one has a free slot.

Named after Knative's `pkg/activator/net/throttler.go`, but without locks, as all runs on one event loop. The rules,
each with a test:

1. A request proceeds at once when the queue is empty and an endpoint has a free slot. Otherwise it is queued (FIFO).
2. An endpoint has a free slot while it has fewer than `slots_per_endpoint` requests of this activator; 0 is unlimited.
   The endpoint with the fewest requests is used first. Among equals it is the least recently used one.
3. At most `hold_limit` requests are queued; another one raises `HoldQueueFull`. A request that is older than `timeout`
   raises `HoldExpired`.
4. An endpoint that refuses a connection is skipped for a time that doubles. Its request returns to the front of the
   queue.
5. No request is held for a revision whose replicas all failed to start (`RevisionFailed`). The next start may succeed.
6. An endpoint that was removed gets no new requests from the moment of `set_target`. Its active requests finish, and
   they still count when the endpoint is added again before that.
7. The first request to an endpoint waits until a probe has confirmed that the model is loaded, as do all others that
   arrive meanwhile. They count as queued.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import KnodelError
from clusters.base.objects import Key
from clusters.embedded.activator.proxy.errors import HoldExpired, HoldQueueFull, RevisionFailed, UnknownRevision
from clusters.embedded.activator.proxy.probe import ReadinessResult
from clusters.embedded.activator.wire import ActivatorTarget, RevisionLoad
from clusters.net.endpoints import Endpoint

FIRST_BACKOFF = 0.05  # s; enough for a server between bind and listen, or one that was just killed
LARGEST_BACKOFF = 1.0  # s; by then the kubelet's probe has failed and the endpoint is removed
_BACKOFF = Backoff(FIRST_BACKOFF, LARGEST_BACKOFF)
UNKNOWN_TIMEOUT = 1.0  # s; after a restart the control plane sends all targets again within this time
UNKNOWN_LIMIT = 1000  # requests to unknown revisions that wait, for all revisions together; Knodel's holdQueue

Probe = Callable[[Endpoint], Coroutine[Any, Any, ReadinessResult]]
"""Returns the result of the probe; it raises no errors."""

LoadChanged = Callable[[Key], None]
"""Called after every change of a revision's load."""


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that needs a slot at an endpoint. Times are seconds of the clock.

    `first`: it arrived at a revision without endpoints and with an empty queue, so it triggers the start of a replica.
    `held`: it was queued. `refused`: an endpoint refused the connection, so it is queued at the front.
    """

    arrived: float
    deadline: float
    first: bool
    held: bool = False
    refused: bool = False


@dataclass(slots=True)
class _PodTracker:
    """An endpoint and its use by this activator.

    `since`: when it was added, in seconds of the clock. `last_used`: sequence number of its last request. `probe`: the
    only probe, unless it reports a fault.
    """

    endpoint: Endpoint
    since: float
    active: int = 0
    last_used: int = 0
    refusals: int = 0
    backing_off: bool = False
    probe: asyncio.Task[ReadinessResult] | None = None


class Reservation:
    """A slot for one request at one endpoint, until `release`."""

    __slots__ = ("_owner", "_tracker")

    def __init__(self, owner: RevisionThrottler, tracker: _PodTracker) -> None:
        self._owner: RevisionThrottler | None = owner
        self._tracker = tracker

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint to which the request is sent."""
        return self._tracker.endpoint

    @property
    def endpoint_since(self) -> float:
        """When the endpoint was added, in seconds of the clock."""
        return self._tracker.since

    async def probed(self, probe: Probe) -> ReadinessResult:
        """Return the result of the endpoint's probe, which is started if there was none.

        The probe continues for other requests when this call is cancelled.
        """
        tracker = self._tracker
        if tracker.probe is None:
            tracker.probe = asyncio.ensure_future(probe(tracker.endpoint))
        if tracker.probe.done():
            return tracker.probe.result()
        if self._owner is None:
            return await asyncio.shield(tracker.probe)
        with self._owner._probing_request():
            return await asyncio.shield(tracker.probe)

    def connected(self) -> None:
        """Record that the endpoint accepted a connection."""
        self._tracker.refusals = 0

    def refused(self, request: PendingRequest) -> None:
        """Release the slot and skip the endpoint for a while, after it refused the connection of `request`."""
        request.refused = True
        self._tracker.probe = None
        if self._owner is not None:
            self._owner._back_off(self._tracker)
            self.release()

    def release(self) -> None:
        """Release the slot; a second call has no effect."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner._release(self._tracker)


@dataclass(slots=True, eq=False)
class _Waiter:
    granted: asyncio.Future[Reservation]
    timer: asyncio.TimerHandle


class RevisionThrottler:
    """The queue and the endpoints of one revision."""

    def __init__(self, target: ActivatorTarget, load_changed: LoadChanged, clock: Clock) -> None:
        self.target = target
        self._load_changed = load_changed
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._trackers: list[_PodTracker] = []
        self._draining: list[_PodTracker] = []
        self._queue: deque[_Waiter] = deque()
        self._active = 0
        self._probing = 0
        self._sequence = 0
        self._is_removed = False
        self.update(target)

    @property
    def load(self) -> RevisionLoad:
        """The numbers of queued and of active requests."""
        return RevisionLoad(len(self._queue) + self._probing, self._active - self._probing)

    @property
    def has_endpoints(self) -> bool:
        """Whether the revision has any endpoint."""
        return bool(self._trackers)

    @property
    def _is_broken(self) -> bool:
        return self.target.broken and not self._trackers

    def update(self, target: ActivatorTarget) -> None:
        """Apply `target` at once. Endpoints that remain, or that are added again, keep their counts."""
        now = self._clock.monotonic()
        draining = {tracker.endpoint: tracker for tracker in self._draining}
        for tracker in draining.values():
            tracker.since, tracker.probe = now, None  # it may have restarted in the meantime
        known = draining | {tracker.endpoint: tracker for tracker in self._trackers}
        self.target = target
        self._trackers = [known.get(endpoint) or _PodTracker(endpoint, now) for endpoint in target.endpoints]
        endpoints = set(target.endpoints)
        self._draining = [tracker for tracker in known.values() if tracker.active and tracker.endpoint not in endpoints]
        self._dispatch()
        if self._is_broken:
            self._fail_all(self._start_failure)

    def remove(self) -> None:
        """Fail all queued requests, because the revision was deleted. Active requests finish."""
        self._is_removed = True
        self._trackers = []
        self._fail_all(self._removal)

    def new_request(self, at: float) -> PendingRequest:
        """Return a request that arrived at the time `at`, in seconds of the clock."""
        return PendingRequest(at, at + self.target.timeout, first=not self._trackers and not self._queue)

    async def reserve(self, request: PendingRequest) -> Reservation:
        """Return a slot for the request, at once or after its turn in the queue.

        Raises HoldQueueFull, HoldExpired, RevisionFailed, and UnknownRevision if the revision is removed. A request
        that is cancelled leaves the queue.
        """
        if self._is_removed:
            raise self._removal()
        if self._is_broken:
            raise self._start_failure()
        tracker = self._pick() if not self._queue else None
        if tracker is not None:
            return self._grant(tracker)
        if not request.refused and len(self._queue) >= self.target.hold_limit:
            raise HoldQueueFull(f"revision {self.target.key} already has {len(self._queue)} queued requests")
        return await self._enqueue(request)

    async def _enqueue(self, request: PendingRequest) -> Reservation:
        granted: asyncio.Future[Reservation] = self._loop.create_future()
        remaining = max(0.0, request.deadline - self._clock.monotonic())
        waiter = _Waiter(granted, self._loop.call_later(remaining, self._expire, granted))
        if request.refused:
            self._queue.appendleft(waiter)
        else:
            self._queue.append(waiter)
        request.held = True
        self._load_changed(self.target.key)
        try:
            return await granted
        except asyncio.CancelledError:
            if waiter in self._queue:
                self._queue.remove(waiter)
                self._load_changed(self.target.key)
            elif not granted.cancelled() and granted.exception() is None:  # granted and cancelled at the same time
                granted.result().release()
            raise
        finally:
            waiter.timer.cancel()

    def _expire(self, granted: asyncio.Future[Reservation]) -> None:
        for waiter in self._queue:
            if waiter.granted is granted:
                timeout = self.target.timeout
                self._fail(waiter, HoldExpired(f"revision {self.target.key} had no capacity within {timeout:g} s"))
                return

    def _removal(self) -> KnodelError:
        return UnknownRevision(f"revision {self.target.key} was removed")

    def _start_failure(self) -> KnodelError:
        return RevisionFailed(f"revision {self.target.key} cannot start: see the status of its Model")

    def _fail_all(self, error: Callable[[], KnodelError]) -> None:
        for waiter in list(self._queue):
            self._fail(waiter, error())

    def _fail(self, waiter: _Waiter, error: KnodelError) -> None:
        self._queue.remove(waiter)
        if not waiter.granted.done():
            waiter.granted.set_exception(error)
        self._load_changed(self.target.key)

    def _dispatch(self) -> None:
        """Grant free slots to queued requests, in the order of the queue."""
        while self._queue:
            if self._queue[0].granted.done():  # cancelled in this iteration of the loop: `_enqueue` has not run yet
                self._queue.popleft()
                self._load_changed(self.target.key)
                continue
            tracker = self._pick()
            if tracker is None:
                return
            self._queue.popleft().granted.set_result(self._grant(tracker))

    def _pick(self) -> _PodTracker | None:
        slots = self.target.slots_per_endpoint
        best: _PodTracker | None = None
        for tracker in self._trackers:
            if tracker.backing_off or (slots and tracker.active >= slots):
                continue
            if best is None or (tracker.active, tracker.last_used) < (best.active, best.last_used):
                best = tracker
        return best

    def _grant(self, tracker: _PodTracker) -> Reservation:
        self._sequence += 1
        tracker.last_used = self._sequence
        tracker.active += 1
        self._active += 1
        self._load_changed(self.target.key)
        return Reservation(self, tracker)

    @contextlib.contextmanager
    def _probing_request(self) -> Iterator[None]:
        """Count a request as queued while it has a slot and waits for the probe of its endpoint."""
        self._probing += 1
        self._load_changed(self.target.key)
        try:
            yield
        finally:
            self._probing -= 1
            self._load_changed(self.target.key)

    def _release(self, tracker: _PodTracker) -> None:
        tracker.active -= 1
        self._active -= 1
        if not tracker.active and tracker in self._draining:
            self._draining.remove(tracker)
        self._dispatch()
        self._load_changed(self.target.key)

    def _back_off(self, tracker: _PodTracker) -> None:
        if tracker.backing_off:
            return
        tracker.backing_off = True
        tracker.refusals += 1
        self._loop.call_later(_BACKOFF.delay(tracker.refusals - 1), self._end_backoff, tracker)

    def _end_backoff(self, tracker: _PodTracker) -> None:
        tracker.backing_off = False
        self._dispatch()


@dataclass(slots=True)
class _UnknownRevision:
    """A revision without a target, for which `waiting` requests wait."""

    known: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


class Throttler:
    """The throttlers of all revisions.

    After a restart of the activator, requests may arrive before the control plane has sent the targets. So a request
    to an unknown revision waits for `UNKNOWN_TIMEOUT`.
    """

    def __init__(self, load_changed: LoadChanged, clock: Clock) -> None:
        self._load_changed = load_changed
        self._clock = clock
        self._revisions: dict[Key, RevisionThrottler] = {}
        self._unknown: dict[Key, _UnknownRevision] = {}
        self._waiting = 0  # requests to unknown revisions

    def __iter__(self) -> Iterator[Key]:
        return iter(self._revisions)

    def set_target(self, target: ActivatorTarget) -> None:
        """Apply `target` before this returns."""
        revision = self._revisions.get(target.key)
        if revision is None:
            self._revisions[target.key] = RevisionThrottler(target, self._load_changed, self._clock)
        else:
            revision.update(target)
        if target.key in self._unknown:
            self._unknown[target.key].known.set()

    def remove_target(self, key: Key) -> None:
        """Remove the revision, and fail its queued requests with UnknownRevision."""
        revision = self._revisions.pop(key, None)
        if revision is not None:
            revision.remove()

    def load(self, key: Key) -> RevisionLoad:
        """Return the load of the revision; zero for an unknown one."""
        revision = self._revisions.get(key)
        return RevisionLoad() if revision is None else revision.load

    def has_endpoints(self, key: Key) -> bool:
        """Return whether the revision has any endpoint."""
        revision = self._revisions.get(key)
        return revision is not None and revision.has_endpoints

    async def revision(self, key: Key) -> RevisionThrottler:
        """Return the throttler of the revision.

        Raises UnknownRevision when the revision has no target within `UNKNOWN_TIMEOUT`, or when more than
        `UNKNOWN_LIMIT` requests wait for unknown revisions.
        """
        if key in self._revisions:
            return self._revisions[key]
        if self._waiting >= UNKNOWN_LIMIT:
            raise UnknownRevision(
                f"revision {key} is unknown, and {self._waiting} requests already wait for unknown revisions"
            )
        unknown = self._unknown.setdefault(key, _UnknownRevision())
        unknown.waiting += 1
        self._waiting += 1
        try:
            async with asyncio.timeout(UNKNOWN_TIMEOUT):
                await unknown.known.wait()
            return self._revisions[key]
        except (TimeoutError, KeyError) as error:
            raise UnknownRevision(f"revision {key} is unknown") from error
        finally:
            self._waiting -= 1
            unknown.waiting -= 1
            if not unknown.waiting:
                del self._unknown[key]
