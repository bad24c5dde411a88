"""Read the totals of all replicas into the history: once a minute, and every few seconds while a page is open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final, Protocol

import msgspec

from autoscaler.metrics.pod_http import PodAddress, PodResponse
from autoscaler.metrics.response_latency import LARGEST_TOTAL, LEAST, MAX_BYTES, MOST
from autoscaler.metrics.stat import BadSample, NoSample
from clusters.base.clock import Clock
from clusters.base.objects import LABEL_REVISION, Object, labels_of, namespace_of
from clusters.net.endpoints import Endpoint, endpoint_of, is_ready
from serving.dashboard.history import Amount, History, SeriesName
from serving.types.annotations import LABEL_MODEL

log = logging.getLogger(__name__)

PAGE: Final = "/stats/answers"
TIMEOUT: Final = 2.0
"""Seconds for the page of one replica."""
SELDOM, OFTEN = 60.0, 5.0
"""Seconds between two samples without and with a viewer."""
AT_ONCE: Final = 32
"""Replicas that are read at the same time."""

_Name = Annotated[str, msgspec.Meta(max_length=253)]
_Total = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOTAL)]
_Bucket = Annotated[int, msgspec.Meta(ge=LEAST, le=MOST)]


class Page(msgspec.Struct, frozen=True):
    """The totals of one process of the model server, since its start."""

    process: _Name
    requests: _Total
    errors: _Total
    latency: dict[_Bucket, _Total]

    def since(self, before: Page | None) -> Amount:
        """Return the responses after the page `before`; all of them if that is None or of another process."""
        if before is None or before.process != self.process:
            return Amount(self.requests, self.errors, Counter(self.latency))
        grown = {bucket: count - before.latency.get(bucket, 0) for bucket, count in self.latency.items()}
        return Amount(
            max(0, self.requests - before.requests),
            max(0, self.errors - before.errors),
            Counter({bucket: count for bucket, count in grown.items() if count > 0}),
        )


_DECODER = msgspec.json.Decoder(Page)


class Pages(Protocol):
    """A client for small pages of Pods (`autoscaler.metrics.pod_http`)."""

    async def get(self, address: PodAddress, path: str, max_bytes: int) -> PodResponse:
        """Return the page. Raises NoSample, BadSample."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Sampler:
    """Fills a history from the replicas of `pods`."""

    def __init__(self, pods: Iterable[Object], pages: Callable[[], Pages], history: History, clock: Clock) -> None:
        """`pages` makes the client at the first sample, in the loop of the caller."""
        self.history = history
        self.count = 0
        """Samples that were taken; it changes when the history changes."""
        self._pods = pods
        self._make_pages = pages
        self._clock = clock
        self._viewers = 0
        self._awake = asyncio.Event()
        self._last: dict[str, Page] = {}
        self._at: float | None = None

    @contextmanager
    def viewing(self) -> Iterator[None]:
        """Sample often while the context is open."""
        self._viewers += 1
        self._awake.set()
        try:
            yield
        finally:
            self._viewers -= 1

    async def run(self) -> None:
        """Sample until cancelled."""
        pages = self._make_pages()
        try:
            while True:
                await self.sample(pages)
                await self._pause()
        finally:
            await pages.close()

    async def _pause(self) -> None:
        """Wait for the next sample: SELDOM, or OFTEN after the last one while a page is open."""
        since = self._clock.monotonic()
        if not self._viewers:
            self._awake.clear()
            waits = [asyncio.ensure_future(one) for one in (self._awake.wait(), self._clock.sleep(SELDOM))]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        if (left := OFTEN - (self._clock.monotonic() - since)) > 0:
            await self._clock.sleep(left)

    async def sample(self, pages: Pages) -> None:
        """Read all ready replicas once. The first sample only notes the totals, since they may be old."""
        now, former = self._clock.monotonic(), self._at
        found = [(endpoint, labels_of(pod), namespace_of(pod)) for pod in self._pods
                 if (endpoint := _readable(pod)) is not None]  # fmt: skip
        limit = asyncio.Semaphore(AT_ONCE)
        read = await asyncio.gather(*(_read(pages, endpoint, limit) for endpoint, _, _ in found))
        amounts: dict[SeriesName, tuple[Amount, list[str]]] = defaultdict(lambda: (Amount(), []))
        current = {endpoint.pod: self._last[endpoint.pod] for endpoint, _, _ in found if endpoint.pod in self._last}
        for (endpoint, labels, namespace), page in zip(found, read, strict=True):
            name = SeriesName(namespace, labels[LABEL_MODEL], labels[LABEL_REVISION])
            if page is None:
                amounts[name][1].append(endpoint.pod)
                continue
            amount = page.since(self._last.get(endpoint.pod)) if former is not None else Amount()
            current[endpoint.pod] = page
            for one in (name, name._replace(revision="")):
                amounts[one][0].add(amount)
                amounts[one][1].append(endpoint.pod)
        self._last, self._at = current, now
        if former is not None and now > former:
            self._record(amounts, now - former)
        self.count += 1

    def _record(self, amounts: dict[SeriesName, tuple[Amount, list[str]]], seconds: float) -> None:
        """Add the amounts to the history. A model with one version has no series for it, since both are equal."""
        at = self._clock.now().timestamp()
        versions = Counter(name[:2] for name in amounts if name.revision)
        for name, (amount, replicas) in amounts.items():
            if not name.revision or versions[name[:2]] > 1 or name.revision in self.history.versions(*name[:2]):
                self.history.add(name, amount, seconds, len(replicas), at)


def _readable(pod: Object) -> Endpoint | None:
    labels = labels_of(pod)
    return endpoint_of(pod) if LABEL_MODEL in labels and LABEL_REVISION in labels and is_ready(pod) else None


async def _read(pages: Pages, endpoint: Endpoint, limit: asyncio.Semaphore) -> Page | None:
    address = PodAddress(endpoint.pod, endpoint.host, endpoint.management_port)
    async with limit:
        with contextlib.suppress(NoSample, BadSample, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _DECODER.decode((await pages.get(address, PAGE, MAX_BYTES)).body)
    return None
