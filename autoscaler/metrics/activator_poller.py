"""One activator, listened to: its page is read again and again, and what it holds is kept as last heard.

A loop of its own, so that one that hangs, drips, dies or talks nonsense delays nobody. The pace is that of all:

    some revision of ours is at zero            Activators.poll    somebody may have to be woken at any moment
    else, while there are revisions of ours     Activators.calm
    no revision of ours                         not at all
    after some polls that failed in a row       Activators.calm at least
    its page is long, or takes it long          BYTES_PER_SECOND and SHARE at most: it has better things to do
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from autoscaler.config import Activators
from autoscaler.metrics.activator_page import ACTIVE, EMPTY, QUEUED, BadPage, Page, PageReader
from autoscaler.metrics.kept_connection import BadAnswer, KeptConnection, NoAnswer
from clusters.base.clock import Clock

log = logging.getLogger(__name__)

PATIENCE = 3  # polls that fail before it is asked less often
BYTES_PER_SECOND = 4e6  # of pages: a tenth of a core of the activator; 100 kB (250 revisions) are read every 25 ms
SHARE = 0.1  # of a core, which gathering the page may take: it gathers all metrics, of all revisions, to tell two
LONGEST_REST = 0.05  # s between two polls for that reason; where all is slow, a request must not wait for it as well
KEPT_TIMES = 20  # answers; the quickest of them tells what one costs, the others waited for a processor
METRICS_PORT = 9090  # of an activator, as its Deployment sets it
TARGET = f"/metrics?name[]={QUEUED}&name[]={ACTIVE}"

Report = Callable[["ActivatorEar", Page], None]
"""Called with the ear and the page before, when what it holds has changed."""


class Counts:
    """Of all activators together, since the start."""

    def __init__(self) -> None:
        self.polls = 0
        self.rejected = 0  # answers that were not believed
        self.unanswered = 0


class ActivatorEar:
    """Listens to one activator while `run` runs; `ready` says whether its silence matters."""

    def __init__(
        self, name: str, host: str, port: int, pace: Callable[[], float | None], report: Report,
        counts: Counts, clock: Clock, settings: Activators,
    ) -> None:  # fmt: skip
        """`pace`: seconds between two polls now, None for no polls."""
        self.name = name
        self._ready = False
        self.page = EMPTY
        self._pace = pace
        self._report = report
        self._counts = counts
        self._clock = clock
        self._settings = settings
        self._reader = PageReader()
        self._connection = KeptConnection(host, port, TARGET, settings.max_bytes)
        self._hurry = asyncio.Event()
        self._waiters: list[asyncio.Future[bool]] = []
        self._heard_at = clock.monotonic()
        self._complaint = ""
        self._failures = 0  # in a row
        self._took: deque[float] = deque(maxlen=KEPT_TIMES)  # s

    @property
    def ready(self) -> bool:
        """Whether it has to answer."""
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        if ready and not self._ready:
            self._heard_at = self._clock.monotonic()
        self._ready = ready

    @property
    def silent_for(self) -> float:
        """Seconds since its last answer; since it became ready, or was not asked, where that is later."""
        return self._clock.monotonic() - self._heard_at

    def hurry(self) -> None:
        """Poll now."""
        self._hurry.set()

    def next_answer(self) -> asyncio.Future[bool]:
        """Whether a poll that begins from now on is answered; it is begun at once."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self._hurry.set()
        return future

    async def run(self) -> None:
        """Listen until cancelled."""
        self._heard_at = self._clock.monotonic()
        try:
            while True:
                await self._pause(await self._poll())
        finally:
            self._connection.close()
            self._settle(self._waiters, answered=False)

    def forget(self) -> None:
        """What it said last is too old to be believed."""
        self._reader = PageReader()
        self._take(EMPTY)

    async def _poll(self) -> float:
        """One poll; the seconds that the next one has to wait at least."""
        if self._pace() is None and not self._hurry.is_set():
            return 0.0
        waiters, self._waiters = self._waiters, []
        self._hurry.clear()
        size, began = None, self._clock.monotonic()
        try:
            size = await self._ask()
        except Exception:  # the frame: what befalls this one must not stop the others
            log.exception("activator %s: a fault of ours", self.name)
        finally:
            self._settle(waiters, size is not None)
        self._failures = self._failures + 1 if size is None else 0
        if size is not None:
            self._took.append(self._clock.monotonic() - began)
        return self._rest(size or 0) if self._failures < PATIENCE else self._settings.calm

    def _rest(self, size: int) -> float:
        """Seconds that it is left in peace after an answer of `size` bytes."""
        return max(size / BYTES_PER_SECOND, min(min(self._took, default=0.0) / SHARE, LONGEST_REST))

    async def _ask(self) -> int | None:
        """Take what it answers; how many bytes, or None when it did not."""
        self._counts.polls += 1
        try:
            body = await self._connection.get(self._settings.timeout)
            page = self._reader.read(body)
        except (BadAnswer, BadPage) as error:
            self._counts.rejected += 1
            self._complain(str(error))
            return None
        except NoAnswer as error:
            self._counts.unanswered += 1
            self._complain(str(error))
            if error.refused:  # its process is gone, and with it all that waited there
                self.forget()
            return None
        self._heard_at = self._clock.monotonic()
        self._complaint = ""
        self._take(page)
        return len(body)

    def _take(self, page: Page) -> None:
        before, self.page = self.page, page
        if page is before:
            return
        if page.uncounted is not None and before.uncounted is None:
            log.warning(
                "activator %s tells late revisions not apart, all of them may be woken by any of their requests: "
                "restart it, or set OTEL_GO_X_CARDINALITY_LIMIT higher in its Deployment",
                self.name,
            )
        self._report(self, before)

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            log.info("activator %s: %s", self.name, why)
        self._complaint = why

    async def _pause(self, least: float) -> None:
        """Wait for the next poll's turn, or for `hurry`."""
        while (pace := self._pace()) is None:
            await self._either(self._settings.calm)  # what ends this pause calls `hurry`; or nobody does
            self._heard_at = self._clock.monotonic()  # nobody asked it
            if self._hurry.is_set():
                return
        if pace <= self._settings.poll and least <= pace:
            await self._clock.sleep(pace)
        else:
            await self._either(max(pace, least))

    async def _either(self, seconds: float) -> None:
        """Until `seconds` are over or `hurry` is called."""
        sleep, call = asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait({sleep, call}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            call.cancel()

    @staticmethod
    def _settle(waiters: list[asyncio.Future[bool]], answered: bool) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(answered)
