"""A monitor of Knative's activators: the queued and active requests of each revision.

Every activator Pod with an address is polled, including terminating ones, because requests may still be queued there.
Only ready ones must answer. Knative needs one changed setting for this (`serving.makers.knative_flags`) and does not
depend on our processes.

A gauge shows the requests at the time of the poll. A request that passes within microseconds is usually missed; a
request that is queued for a replica appears at the next poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from autoscaler.config import Activators
from autoscaler.metrics.activator_page import NO_REQUESTS, ActivatorPage, ActivatorRequests
from autoscaler.metrics.activator_poller import METRICS_PORT, ActivatorPoller, PollCounts
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import POD, Key, Object, key_of, uid_of
from clusters.net.endpoints import is_ready, real_ports
from clusters.runtime.informer import Informer, Informers
from clusters.runtime.manager.metrics import Family, one

log = logging.getLogger(__name__)

SELECTOR: Final = "app=activator"
"""Selects the Pods of Knative's Deployment `activator`."""
NAMESPACE: Final = "knative-serving"
CHECKS: Final = 10  # of unreachable activators within `Activators.unreachable_after`


def activator_informers(cluster: Cluster, clock: Clock, namespace: str = NAMESPACE) -> Informers:
    """Return informers for activator Pods only. The owner of the monitor runs them."""
    return Informers(cluster, clock, namespace=namespace, selectors={POD: SELECTOR})


class ActivatorMonitor:
    """An `ActivatorLoad` that polls while `run` runs. `counts` are the polls of all activators since the start."""

    def __init__(self, pods: Informer, clock: Clock, settings: Activators | None = None) -> None:
        self.counts = PollCounts()
        self._clock = clock
        self._settings = settings or Activators()
        self._pollers: dict[tuple[str, ...], ActivatorPoller] = {}
        self._tasks: dict[ActivatorPoller, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._callbacks: list[Callable[[Key], None]] = []
        self._availability_callbacks: list[Callable[[], None]] = []
        self._revisions: Callable[[], Iterable[Key]] = tuple
        self._wanted: Callable[[], bool] = bool
        self._pace: float | None = None
        self._paced_at = float("-inf")
        self._last_ready_at = clock.monotonic()
        self._available = True
        pods.subscribe(self._on_pod)

    def follow(self, revisions: Callable[[], Iterable[Key]], wanted: Callable[[], bool]) -> None:
        """Set the revisions to monitor. `wanted` returns whether one of them is at zero, which requires the short
        interval.
        """
        self._revisions = revisions
        self._wanted = wanted

    # --- requests ---

    def load(self, key: Key) -> ActivatorRequests:
        """Return the requests of a revision at all activators, by their latest pages."""
        held = [found for poller in self._pollers.values() if (found := poller.page.of(key)) is not NO_REQUESTS]
        if not held:
            return NO_REQUESTS
        return ActivatorRequests(sum(one.queued for one in held), sum(one.active for one in held))

    def subscribe(self, callback: Callable[[Key], None]) -> None:
        """Call `callback` at once when a revision's queue becomes empty or non-empty."""
        self._callbacks.append(callback)

    # --- availability ---

    @property
    def signal_available(self) -> bool:
        """Whether a queued request would be detected.

        False when a ready activator has not answered, or no activator has been ready, for
        `Activators.unreachable_after` seconds. Then no reachable revision may be at zero. True until then, also after a
        start.
        """
        return self._available

    def on_availability_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` when `signal_available` has changed."""
        self._availability_callbacks.append(callback)

    async def refresh(self) -> bool:
        """Poll all activators now. Return whether at least one is ready and all ready ones have answered."""
        answers = [poller.next_answer() for poller in self._pollers.values() if poller.ready and poller in self._tasks]
        complete = len(answers) == len(self._ready())
        return bool(answers) and complete and all(await asyncio.gather(*answers))

    def poll_now(self) -> None:
        """Poll now with a new interval, because a revision has come to zero."""
        self._paced_at = float("-inf")
        for poller in self._pollers.values():
            poller.poll_now()

    def families(self) -> list[Family]:
        """Return the metrics of the polls, by result."""
        counts = self.counts
        results = (
            ({"result": "answered"}, float(counts.polls - counts.rejected - counts.unanswered)),
            ({"result": "rejected"}, float(counts.rejected)),
            ({"result": "unanswered"}, float(counts.unanswered)),
        )
        available = float(self.signal_available)
        return [
            one("knodel_activators_heard", "gauge", "1 while queued requests are detected at zero.", available),
            Family("knodel_activator_polls_total", "counter", "Polls of Knative's activators, by result.", results),
        ]

    # --- polling ---

    async def run(self) -> None:
        """Poll until cancelled."""
        self._last_ready_at = self._clock.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for poller in self._pollers.values():
                    self._start(poller)
                while True:
                    await self._clock.sleep(self._settings.unreachable_after / CHECKS)
                    self._update_availability()
        finally:
            self._group = None

    def _update_availability(self) -> None:
        now, limit = self._clock.monotonic(), self._settings.unreachable_after
        for poller in self._pollers.values():
            if poller.seconds_since_answer > limit:
                poller.clear()
        ready = self._ready()
        if ready or self._pace_now() is None:
            self._last_ready_at = now
        signal_available = now - self._last_ready_at <= limit and all(
            poller.seconds_since_answer <= limit for poller in ready
        )
        if signal_available == self._available:
            return
        self._available = signal_available
        silent = ", ".join(poller.name for poller in ready if poller.seconds_since_answer > limit) or "none is ready"
        if signal_available:
            log.info("all activators answer again")
        else:
            log.warning("no answer from activators for %g s (%s): scale to zero is suspended", limit, silent)
        for callback in self._availability_callbacks:
            callback()

    def _ready(self) -> list[ActivatorPoller]:
        return [poller for poller in self._pollers.values() if poller.ready]

    def _pace_now(self) -> float | None:
        """Return the seconds between two polls. Recalculated every `idle_poll` seconds, because it examines all
        revisions.
        """
        now = self._clock.monotonic()
        if now - self._paced_at >= self._settings.idle_poll:
            self._paced_at = now
            some = next(iter(self._revisions()), None) is not None
            self._pace = (self._settings.poll if self._wanted() else self._settings.idle_poll) if some else None
        return self._pace

    def _on_page(self, poller: ActivatorPoller, before: ActivatorPage) -> None:
        """Notify subscribers of every revision whose queue has become empty or non-empty."""
        if not self._available:
            self._update_availability()
        keys = dict.fromkeys((*poller.page.held, *before.held))
        if poller.page.uncounted != before.uncounted:
            keys |= dict.fromkeys(self._revisions())
        for key in keys:
            others = sum(other.page.of(key).queued for other in self._pollers.values() if other is not poller)
            if not others and bool(poller.page.of(key).queued) != bool(before.of(key).queued):
                for callback in self._callbacks:
                    callback(key)

    # --- activators ---

    def _on_pod(self, before: Object | None, after: Object | None) -> None:
        """Start, update or stop the poller of a changed activator Pod."""
        then, now = _place(before), _place(after)
        if then is not None and then != now:
            self._stop(then)
        if after is None or now is None:
            return
        if now not in self._pollers:
            name, _, host, port = now
            self._pollers[now] = ActivatorPoller(
                name, host, int(port), self._pace_now, self._on_page, self.counts, self._clock, self._settings
            )
            if self._group is not None:
                self._start(self._pollers[now])
        self._pollers[now].ready = is_ready(after)

    def _start(self, poller: ActivatorPoller) -> None:
        if self._group is not None:
            self._tasks[poller] = self._group.create_task(poller.run(), name=f"activator {poller.name}")

    def _stop(self, place: tuple[str, ...]) -> None:
        poller = self._pollers.pop(place, None)
        if poller is not None:
            poller.clear()
            if (task := self._tasks.pop(poller, None)) is not None:
                task.cancel()


def _place(pod: Object | None) -> tuple[str, ...] | None:
    """Return the identity and address of an activator; None while it has no address."""
    address = ((pod or {}).get("status") or {}).get("podIP")
    if pod is None or not address:
        return None
    port = real_ports(pod).get(str(METRICS_PORT), METRICS_PORT)
    return str(key_of(pod)), uid_of(pod), str(address), str(port)
