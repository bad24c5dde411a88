"""All activators of Knative's, listened to: how many requests of a revision wait there, and pass.

Activators come and go: every Pod of theirs that has an address is asked, one that is ending too, since requests may
still wait in it; but only the ready ones have to answer. This changes nothing in Knative but one setting
(`serving.makers.knative_flags`), and with all of our processes gone Knative does not notice.

A gauge is seen when it is looked at, so a request that goes through within microseconds is seen by chance; one that
waits for a replica is seen at the next poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from autoscaler.config import Activators
from autoscaler.metrics.activator_page import NOTHING, Held, Page
from autoscaler.metrics.activator_poller import METRICS_PORT, ActivatorEar, Counts
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import POD, Key, Object, key_of, uid_of
from clusters.net.endpoints import is_ready, real_ports
from clusters.runtime.informer import Informer, Informers

log = logging.getLogger(__name__)

SELECTOR: Final = "app=activator"
"""Of the Pods of Knative's Deployment `activator`."""
NAMESPACE: Final = "knative-serving"
LOOKS: Final = 10  # at who is silent, within `Activators.deaf_after`


def activator_informers(cluster: Cluster, clock: Clock, namespace: str = NAMESPACE) -> Informers:
    """Informers of activators alone; to be run by whoever runs the poller."""
    return Informers(cluster, clock, namespace=namespace, selectors={POD: SELECTOR})


class ActivatorPoller:
    """An `ActivatorLoad` that asks, while `run` runs. `counts` are those of all activators since the start."""

    def __init__(self, pods: Informer, clock: Clock, settings: Activators | None = None) -> None:
        self.counts = Counts()
        self._clock = clock
        self._settings = settings or Activators()
        self._ears: dict[tuple[str, ...], ActivatorEar] = {}
        self._tasks: dict[ActivatorEar, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._callbacks: list[Callable[[Key], None]] = []
        self._hearing_callbacks: list[Callable[[], None]] = []
        self._revisions: Callable[[], Iterable[Key]] = tuple
        self._wanted: Callable[[], bool] = bool
        self._pace: float | None = None
        self._paced_at = float("-inf")
        self._someone_at = clock.monotonic()
        self._hears = True
        pods.subscribe(self._pod)

    def follow(self, revisions: Callable[[], Iterable[Key]], wanted: Callable[[], bool]) -> None:
        """Listen for these revisions; `wanted` says whether one of them is at zero, so that every moment counts."""
        self._revisions = revisions
        self._wanted = wanted

    # --- what is heard ---

    def load(self, key: Key) -> Held:
        """What all activators together hold of a revision, as last heard."""
        held = [found for ear in self._ears.values() if (found := ear.page.of(key)) is not NOTHING]
        if not held:
            return NOTHING
        return Held(sum(one.queued for one in held), sum(one.active for one in held))

    def subscribe(self, callback: Callable[[Key], None]) -> None:
        """Call `callback` at once when a revision's queue becomes empty or non-empty."""
        self._callbacks.append(callback)

    # --- whether anything is heard ---

    @property
    def hears(self) -> bool:
        """Whether a request that waits would be noticed.

        False when a ready activator has been silent, or no activator been ready, for `Activators.deaf_after` seconds:
        then nothing that can be reached may be at zero. True until then, after a start too.
        """
        return self._hears

    def on_hearing(self, callback: Callable[[], None]) -> None:
        """Call `callback` when `hears` has changed."""
        self._hearing_callbacks.append(callback)

    async def refresh(self) -> bool:
        """Ask all activators now; whether there is a ready one, and all ready ones have answered."""
        answers = [ear.next_answer() for ear in self._ears.values() if ear.ready and ear in self._tasks]
        complete = len(answers) == len(self._ready())
        return bool(answers) and complete and all(await asyncio.gather(*answers))

    def hurry(self) -> None:
        """Something has come to zero: look at `wanted` anew, and poll now."""
        self._paced_at = float("-inf")
        for ear in self._ears.values():
            ear.hurry()

    # --- the work ---

    async def run(self) -> None:
        """Listen until cancelled."""
        self._someone_at = self._clock.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for ear in self._ears.values():
                    self._start(ear)
                await self._watch()
        finally:
            self._group = None

    async def _watch(self) -> None:
        """Notice silence, which no answer tells of."""
        while True:
            await self._clock.sleep(self._settings.deaf_after / LOOKS)
            self._judge()

    def _judge(self) -> None:
        now, limit = self._clock.monotonic(), self._settings.deaf_after
        for ear in self._ears.values():
            if ear.silent_for > limit:
                ear.forget()
        ready = self._ready()
        if ready or self._pace_now() is None:
            self._someone_at = now
        hears = now - self._someone_at <= limit and all(ear.silent_for <= limit for ear in ready)
        if hears == self._hears:
            return
        self._hears = hears
        silent = ", ".join(ear.name for ear in ready if ear.silent_for > limit) or "none is ready"
        if hears:
            log.info("all activators are heard again")
        else:
            log.warning("activators not heard for %g s (%s): nothing that can be reached goes to zero", limit, silent)
        for callback in self._hearing_callbacks:
            callback()

    def _ready(self) -> list[ActivatorEar]:
        return [ear for ear in self._ears.values() if ear.ready]

    def _pace_now(self) -> float | None:
        """Seconds between two polls; looked at anew every `calm` seconds, since it costs a look at all revisions."""
        now = self._clock.monotonic()
        if now - self._paced_at >= self._settings.calm:
            self._paced_at = now
            some = next(iter(self._revisions()), None) is not None
            self._pace = (self._settings.poll if self._wanted() else self._settings.calm) if some else None
        return self._pace

    def _heard(self, ear: ActivatorEar, before: Page) -> None:
        """Tell whose queue has become empty, or is so no longer."""
        if not self._hears:
            self._judge()
        for key in self._touched(ear.page, before):
            others = sum(other.page.of(key).queued for other in self._ears.values() if other is not ear)
            if not others and bool(ear.page.of(key).queued) != bool(before.of(key).queued):
                for callback in self._callbacks:
                    callback(key)

    def _touched(self, page: Page, before: Page) -> Iterator[Key]:
        yield from {**page.held, **before.held}
        if page.uncounted != before.uncounted:
            yield from [key for key in self._revisions() if key not in page.held and key not in before.held]

    # --- who there is ---

    def _pod(self, before: Object | None, after: Object | None) -> None:
        """An activator has changed."""
        then, now = _place(before), _place(after)
        if then is not None and then != now:
            self._stop(then)
        if after is None or now is None:
            return
        if now not in self._ears:
            name, _, host, port = now
            self._ears[now] = ActivatorEar(
                name, host, int(port), self._pace_now, self._heard, self.counts, self._clock, self._settings
            )
            if self._group is not None:
                self._start(self._ears[now])
        self._ears[now].ready = is_ready(after)

    def _start(self, ear: ActivatorEar) -> None:
        if self._group is not None:
            self._tasks[ear] = self._group.create_task(ear.run(), name=f"activator {ear.name}")

    def _stop(self, place: tuple[str, ...]) -> None:
        ear = self._ears.pop(place, None)
        if ear is not None:
            ear.forget()
            if (task := self._tasks.pop(ear, None)) is not None:
                task.cancel()


def _place(pod: Object | None) -> tuple[str, ...] | None:
    """Which activator it is, and where it answers; None while it has no address."""
    address = ((pod or {}).get("status") or {}).get("podIP")
    if pod is None or not address:
        return None
    port = real_ports(pod).get(str(METRICS_PORT), METRICS_PORT)
    return str(key_of(pod)), uid_of(pod), str(address), str(port)
