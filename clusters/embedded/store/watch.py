"""A watch of the store: a bounded queue of events for one watcher."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clusters.base.api import WatchEvent
from clusters.base.errors import ClusterError, Gone
from clusters.base.objects import Kind, Object, labels_of, namespace_of
from clusters.base.selectors import Selector
from clusters.embedded.store.history import ObjectChange

LONGEST_BACKLOG = 4096
"""Maximum events that are queued for a slow watcher. Then its watch fails with Gone, and it must list again."""
BOOKMARK_EVERY = 1024
"""Versions without an event after which a watcher gets a bookmark: a quarter of the history."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The namespace and the selector of a list or a watch."""

    namespace: str | None
    selector: Selector

    def accepts(self, obj: Object) -> bool:
        """Return whether the object is in the namespace and matches the selector."""
        if self.namespace is not None and namespace_of(obj) != self.namespace:
            return False
        return not self.selector or self.selector.matches(labels_of(obj))


class Watch:
    """An asynchronous iterator of WatchEvents. Raises Gone when it was too slow, or started too far in the past."""

    def __init__(self, kind: Kind, version: int, matching: Filter, on_close: Callable[[Watch], None]) -> None:
        self.kind = kind
        self._seen = version
        self._filter = matching
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
        """Raise `error` from the iteration, after the queued events."""
        self._failure = error
        self._on_close(self)
        self._wake()

    def offer(self, changes: Iterable[ObjectChange]) -> None:
        """Queue the events of changes of this kind. Fail with Gone when there are too many events."""
        for change in changes:
            if len(self._events) >= LONGEST_BACKLOG:
                self._events.clear()
                self.fail(Gone(f"the watch of {self.kind} fell {LONGEST_BACKLOG} events behind: list again"))
                return
            self.replay(change)

    def replay(self, change: ObjectChange) -> None:
        """Queue the event of a change from the history, which is bounded."""
        event = self._translate(change)
        if event is not None:
            self._seen = change.version
            self._put(event)

    def bookmark(self, version: int) -> None:
        """Queue a bookmark with the version, unless there was an event recently."""
        if version - self._seen >= BOOKMARK_EVERY:
            self._seen = version
            metadata = {"resourceVersion": str(version)}
            obj = {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata}
            self._put(WatchEvent("BOOKMARK", obj))

    def add_existing(self, obj: Object) -> None:
        """Queue an ADDED event for an object that existed before the watch."""
        if self._filter.accepts(obj):
            self._put(WatchEvent("ADDED", obj))

    def _put(self, event: WatchEvent) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _translate(self, change: ObjectChange) -> WatchEvent | None:
        """Return the event for this watcher, if any. An object that no longer matches is DELETED, not MODIFIED."""
        before = change.before is not None and self._filter.accepts(change.before)
        after = not change.removed and self._filter.accepts(change.after)
        if after:
            return WatchEvent("MODIFIED" if before else "ADDED", change.after)
        if not before:
            return None
        if change.removed or change.before is None:
            return WatchEvent("DELETED", change.after)
        # As kube-apiserver does: the object before the change, with the version of the change.
        metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
        return WatchEvent("DELETED", {**change.before, "metadata": metadata})
