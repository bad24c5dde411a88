"""A poller of one activator's metrics endpoint, which keeps the latest page.

Each poller has its own loop, so that an activator that hangs or sends malformed data does not delay the others. All
pollers have the same interval:

    a revision of ours is at zero               Activators.poll       a queued request must be detected quickly
    else, while there are revisions of ours     Activators.idle_poll
    no revision of ours                         no polls
    after several failed polls in a row         at least Activators.idle_poll
    the page is long, or slow to produce        limited by BYTES_PER_SECOND and CPU_SHARE, to spare the activator
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from autoscaler.config import Activators
from autoscaler.metrics.activator_page import ACTIVE, EMPTY_PAGE, QUEUED, ActivatorPage, BadPage, PageReader
from autoscaler.metrics.persistent_connection import BadResponse, NoResponse, PersistentConnection
from clusters.base.clock import Clock

log = logging.getLogger(__name__)

FAILURES_BEFORE_SLOWDOWN = 3  # failed polls until the interval is longer
BYTES_PER_SECOND = 4e6  # of pages: a tenth of an activator's core; 100 kB (250 revisions) are read every 25 ms
CPU_SHARE = 0.1  # of a core for producing the page: the activator gathers all metrics to answer for these two
LONGEST_INTERVAL = (
    0.05  # s between two polls because of CPU_SHARE; queued requests must not wait longer on slow machines
)
KEPT_DURATIONS = 20  # polls; the shortest one shows the cost of a page, the others waited for a processor
METRICS_PORT = 9090  # port of an activator, as its Deployment sets it
TARGET = f"/metrics?name[]={QUEUED}&name[]={ACTIVE}"

Report = Callable[["ActivatorPoller", ActivatorPage], None]
"""Called with the poller and its previous page when the page has changed."""


class PollCounts:
    """Polls of all activators since the start."""

    def __init__(self) -> None:
        self.polls = 0
        self.rejected = 0  # malformed responses
        self.unanswered = 0


class ActivatorPoller:
    """Polls one activator while `run` runs; `ready` is set by the owner."""

    def __init__(
        self, name: str, host: str, port: int, pace: Callable[[], float | None], report: Report,
        counts: PollCounts, clock: Clock, settings: Activators,
    ) -> None:  # fmt: skip
        """Create a poller. `pace` returns the current seconds between two polls, None for no polls."""
        self.name = name
        self._ready = False
        self.page = EMPTY_PAGE
        self._pace = pace
        self._report = report
        self._counts = counts
        self._clock = clock
        self._settings = settings
        self._reader = PageReader()
        self._connection = PersistentConnection(host, port, TARGET, settings.max_bytes)
        self._poll_requested = asyncio.Event()
        self._waiters: list[asyncio.Future[bool]] = []
        self._answered_at = clock.monotonic()
        self._last_logged = ""
        self._failures = 0  # in a row
        self._durations: deque[float] = deque(maxlen=KEPT_DURATIONS)  # s

    @property
    def ready(self) -> bool:
        """Whether the activator is ready, so that it must answer."""
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        if ready and not self._ready:
            self._answered_at = self._clock.monotonic()
        self._ready = ready

    @property
    def seconds_since_answer(self) -> float:
        """Seconds since the last response, or since it became ready or polls were resumed, if that is later."""
        return self._clock.monotonic() - self._answered_at

    def poll_now(self) -> None:
        """Start a poll now."""
        self._poll_requested.set()

    def next_answer(self) -> asyncio.Future[bool]:
        """Start a poll and return a future: whether the poll is answered."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self._poll_requested.set()
        return future

    async def run(self) -> None:
        """Poll until cancelled."""
        self._answered_at = self._clock.monotonic()
        try:
            while True:
                await self._wait_for_turn(await self._poll())
        finally:
            self._connection.close()
            self._resolve(self._waiters, answered=False)

    def clear(self) -> None:
        """Discard the last page, which is out of date."""
        self._reader = PageReader()
        self._store(EMPTY_PAGE)

    async def _poll(self) -> float:
        """Poll once and return the minimum seconds until the next poll."""
        if self._pace() is None and not self._poll_requested.is_set():
            return 0.0
        waiters, self._waiters = self._waiters, []
        self._poll_requested.clear()
        size, began = None, self._clock.monotonic()
        try:
            size = await self._fetch()
        except Exception:  # an error in one poller must not stop the others
            log.exception("activator %s: internal error", self.name)
        finally:
            self._resolve(waiters, size is not None)
        self._failures = self._failures + 1 if size is None else 0
        if size is not None:
            self._durations.append(self._clock.monotonic() - began)
        if self._failures >= FAILURES_BEFORE_SLOWDOWN:
            return self._settings.idle_poll
        return max((size or 0) / BYTES_PER_SECOND, min(min(self._durations, default=0.0) / CPU_SHARE, LONGEST_INTERVAL))

    async def _fetch(self) -> int | None:
        """Read the page; return its bytes, or None without a usable response."""
        self._counts.polls += 1
        try:
            body = await self._connection.get(self._settings.timeout)
            page = self._reader.read(body)
        except (BadResponse, BadPage) as error:
            self._counts.rejected += 1
            self._log_once(str(error))
            return None
        except NoResponse as error:
            self._counts.unanswered += 1
            self._log_once(str(error))
            if error.refused:  # its process has ended, and with it the requests that were queued there
                self.clear()
            return None
        self._answered_at = self._clock.monotonic()
        self._last_logged = ""
        self._store(page)
        return len(body)

    def _store(self, page: ActivatorPage) -> None:
        before, self.page = self.page, page
        if page is before:
            return
        if page.uncounted is not None and before.uncounted is None:
            log.warning(
                "activator %s cannot distinguish its newest revisions, so a request for one of them may wake all: "
                "restart it, or raise OTEL_GO_X_CARDINALITY_LIMIT in its Deployment",
                self.name,
            )
        self._report(self, before)

    def _log_once(self, why: str) -> None:
        if why != self._last_logged:
            log.info("activator %s: %s", self.name, why)
        self._last_logged = why

    async def _wait_for_turn(self, least: float) -> None:
        """Wait until the next poll is due, or until `poll_now`."""
        while (pace := self._pace()) is None:
            await self._wait(self._settings.idle_poll)
            self._answered_at = self._clock.monotonic()  # no poll was due, so none is overdue
            if self._poll_requested.is_set():
                return
        if pace <= self._settings.poll and least <= pace:
            await self._clock.sleep(pace)
        else:
            await self._wait(max(pace, least))

    async def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until `poll_now`."""
        sleep, call = (
            asyncio.ensure_future(self._clock.sleep(seconds)),
            asyncio.ensure_future(self._poll_requested.wait()),
        )
        try:
            await asyncio.wait({sleep, call}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            call.cancel()

    @staticmethod
    def _resolve(waiters: list[asyncio.Future[bool]], answered: bool) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(answered)
