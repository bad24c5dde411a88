"""Records what happens to the traced objects of one namespace, on either cluster, by watching them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType

from clusters.base.api import Cluster, WatchEvent
from clusters.base.clock import Clock
from clusters.base.objects import Kind, Object, key_of, version_of
from tests.golden.trace import TRACED, Trace, conditions_of, trace_of

Look = Callable[[], bool]


class Recorder:
    """Use it with `async with`: it watches from the entry to the exit. A watch that fails fails whoever waits."""

    def __init__(self, cluster: Cluster, namespace: str, clock: Clock) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._clock = clock
        self._events: list[tuple[Kind, WatchEvent]] = []
        self._objects: dict[tuple[Kind, str], Object] = {}
        self._news = asyncio.Event()
        self._changed_at = clock.monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Recorder:
        versions = [(await self._cluster.list(kind, self._namespace)).resource_version for kind in TRACED]
        for kind, version in zip(TRACED, versions, strict=True):
            self._tasks.append(asyncio.create_task(self._watch(kind, version), name=f"record {kind}"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def get(self, kind: Kind, name: str) -> Object | None:
        """The object as it was last seen, None before and after its life."""
        return self._objects.get((kind, name))

    @property
    def is_empty(self) -> bool:
        """Whether no traced object lives."""
        return not self._objects

    @property
    def version(self) -> int:
        """The newest version seen."""
        return max((int(version_of(event.object)) for _, event in self._events), default=0)

    def trace(self, after: int = 0) -> Trace:
        """What was seen, from the first event behind version `after`."""
        return trace_of(self._events, after)

    async def until(self, look: Look, timeout: float) -> None:
        """Wait until `look` is true of what was seen. Raises TimeoutError with all conditions."""
        try:
            async with asyncio.timeout(timeout):
                while not look():
                    await self._next()
        except TimeoutError:
            raise TimeoutError(
                f"not within {timeout:.0f} s; {self._namespace} stands at {self.trace().final}"
            ) from None

    async def quiet(self, seconds: float, timeout: float) -> None:
        """Wait until no condition has changed for so long. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while (rest := self._changed_at + seconds - self._clock.monotonic()) > 0:
                await self._clock.sleep(rest)
                self._check()

    async def _next(self) -> None:
        self._check()
        self._news.clear()
        await self._news.wait()

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def _watch(self, kind: Kind, version: str) -> None:
        try:
            async for event in self._cluster.watch(kind, version, self._namespace):
                self._take(kind, event)
        finally:
            self._news.set()

    def _take(self, kind: Kind, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            return
        key = (kind, key_of(event.object).name)
        former = self._objects.pop(key, None)
        if event.type != "DELETED":
            self._objects[key] = event.object
        self._events.append((kind, event))
        if former is None or event.type == "DELETED" or conditions_of(former) != conditions_of(event.object):
            self._changed_at = self._clock.monotonic()
        self._news.set()
