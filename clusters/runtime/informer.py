"""A local, watched copy of one kind: list, then watch; after `Gone` list again; after a break go on with back-off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from clusters.base.api import Cluster, ObjectList, WatchEvent
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock, SystemClock
from clusters.base.errors import ClusterError, Gone, Unavailable
from clusters.base.objects import Key, Kind, Object, controller_of, key_of, version_of
from clusters.base.selectors import parse_selector

log = logging.getLogger(__name__)

Handler = Callable[[Object | None, Object | None], None]
"""Called with (before, after): before is None when added, after is None when deleted."""

Index = Callable[[Object], Iterable[str]]
"""Under which values an object is to be found."""

FIRST_BACKOFF = 0.1  # s
LARGEST_BACKOFF = 10.0  # s
_BACKOFF = Backoff(FIRST_BACKOFF, LARGEST_BACKOFF)
CATCH_UP_LOOK = 0.05  # s between two looks at whether the watch has arrived where the cluster is
CATCH_UP_RETRY = 1.0  # s between two lists; an object that was deleted in this very moment is not in the next one


def by_owner(obj: Object) -> Iterable[str]:
    """The uid of the controlling owner."""
    owner = controller_of(obj)
    return () if owner is None else (owner["uid"],)


class Informer:
    """One kind, kept in memory. Objects in it are the cluster's own values: never change them in place."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        *,
        namespace: str | None = None,
        selector: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.kind = kind
        self._cluster = cluster
        self._namespace = namespace
        self._selector = selector
        self._clock = clock or SystemClock()
        self._version = ""
        self._objects: dict[Key, Object] = {}
        self._handlers: list[Handler] = []
        self._indexes: dict[str, Index] = {"owner": by_owner}
        self._indexed: dict[str, dict[str, dict[Key, Object]]] = {"owner": {}}
        self._synced = asyncio.Event()

    def subscribe(self, handler: Handler) -> None:
        """Call `handler` at every change from now on, and at once for each object already known."""
        self._handlers.append(handler)
        for key, obj in list(self._objects.items()):
            self._tell(handler, key, None, obj)

    def add_index(self, name: str, index: Index) -> None:
        """Make `indexed(name, value)` answer; adding the same name again replaces it."""
        self._indexes[name] = index
        self._indexed[name] = {}
        for key, obj in self._objects.items():
            for value in _values(index, obj):
                self._indexed[name].setdefault(value, {})[key] = obj

    def get(self, name: str, namespace: str = "") -> Object | None:
        """The object as last seen, or None."""
        return self._objects.get(Key(namespace, name))

    @property
    def resource_version(self) -> str:
        """Up to which version of the cluster all changes of the kind were seen; "" before the first list."""
        return self._version

    def indexed(self, index: str, value: str) -> list[Object]:
        """All objects under `value` of that index (`owner` is always there: uid of the controller)."""
        return list(self._indexed[index].get(value, {}).values())

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    async def synced(self) -> None:
        """Return once the first list is in."""
        await self._synced.wait()

    async def caught_up(self) -> None:
        """Return once all that the cluster holds at this moment was seen: for who takes over from another writer.

        Resource versions are compared as numbers, as Kubernetes 1.35 promises. A watch that died unnoticed makes this
        wait until it is found dead.
        """
        while not await self._reaches(await self._present()):
            log.info("the watch of %s is behind the cluster: waiting for it", self.kind)

    async def run(self) -> None:
        """List and watch until cancelled. Raises Invalid for a wrong selector, which does not get better."""
        parse_selector(self._selector)
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                self._replace(await self._cluster.list(self.kind, self._namespace, self._selector))
                await self._follow()
            except ClusterError as error:
                if self._clock.monotonic() - began >= LARGEST_BACKOFF:  # it went well in between
                    failures = 0
                await self._clock.sleep(self._pause(error, _BACKOFF.delay(failures)))
                failures += 1

    def _pause(self, error: ClusterError, backoff: float) -> float:
        """Seconds to wait before the next list."""
        if isinstance(error, Gone):
            log.info("watch history of %s is gone: listing again in %.1f s", self.kind, backoff)
            return backoff
        pause = (error.retry_after if isinstance(error, Unavailable) else None) or backoff
        log.warning("cannot list or watch %s (%s): again in %.1f s", self.kind, error, pause)
        return pause

    async def _follow(self) -> None:
        """Watch from where the list stood; a watch that merely ends is resumed where it stood."""
        while True:
            silent = True
            async for event in self._cluster.watch(self.kind, self._version, self._namespace, self._selector):
                silent = False
                self._version = version_of(event.object) or self._version
                self._take(event)
            if silent:  # a watch that ends at once is not asked in a tight loop
                await self._clock.sleep(FIRST_BACKOFF)

    async def _present(self) -> ObjectList:
        while True:
            try:
                return await self._cluster.list(self.kind, self._namespace, self._selector)
            except ClusterError as error:
                log.warning("cannot list %s: %s", self.kind, error)
            await self._clock.sleep(CATCH_UP_RETRY)

    async def _reaches(self, present: ObjectList) -> bool:
        """Whether the watch arrives there within `CATCH_UP_RETRY`."""
        deadline = self._clock.monotonic() + CATCH_UP_RETRY
        while self._is_behind(present):
            if self._clock.monotonic() >= deadline:
                return False
            await self._clock.sleep(CATCH_UP_LOOK)
        return True

    def _is_behind(self, present: ObjectList) -> bool:
        """Whether a change before the list is not seen yet, a deletion too."""
        there = {key_of(obj): int(version_of(obj)) for obj in present.items}
        seen = {key: int(version_of(obj)) for key, obj in self._objects.items()}
        listed_at = int(present.resource_version)
        return any(seen.get(key, -1) < version for key, version in there.items()) or any(
            version <= listed_at and key not in there for key, version in seen.items()
        )

    def _replace(self, snapshot: ObjectList) -> None:
        """Take a snapshot for truth: whatever is not in it was deleted."""
        fresh = {key_of(obj): obj for obj in snapshot.items}
        for key in [key for key in self._objects if key not in fresh]:
            self._set(key, None)
        for key, obj in fresh.items():
            known = self._objects.get(key)
            if known is None or version_of(known) != version_of(obj):
                self._set(key, obj)
        self._version = snapshot.resource_version
        self._synced.set()

    def _take(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            return
        self._set(key_of(event.object), None if event.type == "DELETED" else event.object)

    def _set(self, key: Key, obj: Object | None) -> None:
        former = self._objects.pop(key, None)
        if obj is not None:
            self._objects[key] = obj
        for name, index in self._indexes.items():
            self._reindex(self._indexed[name], index, key, former, obj)
        if former is None and obj is None:
            return
        for handler in self._handlers:
            self._tell(handler, key, former, obj)

    def _tell(self, handler: Handler, key: Key, former: Object | None, obj: Object | None) -> None:
        """Call it. One object that it cannot bear must not end the watch of all others."""
        try:
            handler(former, obj)
        except Exception:
            log.exception("a change of %s %s was not taken notice of, by a fault of ours", self.kind, key)

    @staticmethod
    def _reindex(
        table: dict[str, dict[Key, Object]], index: Index, key: Key, former: Object | None, obj: Object | None
    ) -> None:
        for value in _values(index, former):
            bucket = table.get(value, {})
            bucket.pop(key, None)
            if not bucket:
                table.pop(value, None)
        if obj is not None:
            for value in _values(index, obj):
                table.setdefault(value, {})[key] = obj


def _values(index: Index, obj: Object | None) -> list[str]:
    """Under which values it is found; under none where that cannot be told."""
    try:
        return list(index(obj)) if obj is not None else []
    except Exception:
        log.exception("an object cannot be found by an index, by a fault of ours")
        return []


class Informers:
    """The informers of one process, one for each kind, shared by its controllers.

    `namespace` narrows all of them (None: no), `selectors` those of some kinds to objects with certain labels.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock | None = None,
        *,
        namespace: str | None = None,
        selectors: Mapping[Kind, str] = MappingProxyType({}),
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._namespace = namespace
        self._selectors = selectors
        self._informers: dict[Kind, Informer] = {}

    def __getitem__(self, kind: Kind) -> Informer:
        if kind not in self._informers:
            self._informers[kind] = Informer(
                self._cluster,
                kind,
                namespace=self._namespace,
                selector=self._selectors.get(kind, ""),
                clock=self._clock,
            )
        return self._informers[kind]

    def __iter__(self) -> Iterator[Informer]:
        return iter(list(self._informers.values()))

    async def run(self) -> None:
        """Run all informers asked for so far, until cancelled. Ask for them before this starts."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run(), name=f"informer {informer.kind}")

    async def synced(self) -> None:
        """Return once every informer asked for so far holds its first list."""
        for informer in self._informers.values():
            await informer.synced()

    async def caught_up(self) -> None:
        """Return once every informer has seen all that the cluster holds at this moment."""
        await asyncio.gather(*(informer.caught_up() for informer in self))


__all__ = ["Handler", "Index", "Informer", "Informers", "by_owner"]
