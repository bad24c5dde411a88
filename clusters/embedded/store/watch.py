"""One watcher of the store: a bounded queue between the writes and an `async for`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clusters.base.api import WatchEvent
from clusters.base.errors import ClusterError, Gone
from clusters.base.objects import Kind, Object, labels_of, namespace_of
from clusters.base.selectors import Selector
from clusters.embedded.store.history import Change

LONGEST_BACKLOG = 4096
"""Events that wait for a slow watcher; beyond them it is told Gone and lists again."""
BOOKMARK_EVERY = 1024
"""Versions of other objects after which a watcher hears where the cluster stands: a quarter of the history."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which objects a watcher or a list sees."""

    namespace: str | None
    selector: Selector

    def accepts(self, obj: Object) -> bool:
        """Whether `obj` is among them."""
        if self.namespace is not None and namespace_of(obj) != self.namespace:
            return False
        return not self.selector or self.selector.matches(labels_of(obj))


class Watch:
    """An asynchronous iterator of WatchEvents. Raises Gone when it was too slow, or started too far back."""

    def __init__(self, kind: Kind, version: int, sees: Filter, on_close: Callable[[Watch], None]) -> None:
        self.kind = kind
        self._seen = version
        self._sees = sees
        self._on_close = on_close
        self._events: deque[WatchEvent] = deque()
        self._failure: ClusterError | None = None
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchEvent:
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._events.popleft()

    async def aclose(self) -> None:
        """End the iteration."""
        self._closed = True
        self._events.clear()
        self._on_close(self)
        self._wake()

    def fail(self, error: ClusterError) -> None:
        """Let the iteration raise `error` after the events that still wait."""
        self._failure = error
        self._on_close(self)
        self._wake()

    def offer(self, changes: Iterable[Change]) -> None:
        """Tell of changes of this kind. A watcher that is too far behind is told Gone instead."""
        for change in changes:
            if len(self._events) >= LONGEST_BACKLOG:
                self._events.clear()
                self.fail(Gone(f"the watch of {self.kind} fell {LONGEST_BACKLOG} events behind: list again"))
                return
            self.replay(change)

    def replay(self, change: Change) -> None:
        """Tell of a change from the history, which is bounded itself."""
        event = self._translate(change)
        if event is not None:
            self._seen = change.version
            self._put(event)

    def bookmark(self, version: int) -> None:
        """Tell how far the cluster is, unless an event told so lately."""
        if version - self._seen >= BOOKMARK_EVERY:
            self._seen = version
            self._put(WatchEvent("BOOKMARK", self._marker(version)))

    def put_present(self, obj: Object) -> None:
        """Tell of an object that was there before the watch began."""
        if self._sees.accepts(obj):
            self._put(WatchEvent("ADDED", obj))

    def _put(self, event: WatchEvent) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _translate(self, change: Change) -> WatchEvent | None:
        """Seen before and after decide: an object that stops matching is DELETED for this watcher, not MODIFIED."""
        before = change.before is not None and self._sees.accepts(change.before)
        after = not change.removed and self._sees.accepts(change.after)
        if after:
            return WatchEvent("MODIFIED" if before else "ADDED", change.after)
        if before:
            return WatchEvent("DELETED", _last_seen(change))
        return None

    def _marker(self, version: int) -> Object:
        metadata = {"resourceVersion": str(version)}
        return {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata}


def _last_seen(change: Change) -> Object:
    """The object before it went out of sight, with the version of that change, as kube-apiserver sends it."""
    if change.removed or change.before is None:
        return change.after
    return {**change.before, "metadata": {**change.before["metadata"], "resourceVersion": str(change.version)}}
