"""A local copy of the objects of a kind, kept current by a list and a watch, and listed again after `Gone`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from clusters.base.api import Cluster, ObjectList, Trim
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock, SystemClock
from clusters.base.errors import ClusterError, Forbidden, Gone, NotFound, Unavailable
from clusters.base.objects import Key, Kind, Object, controller_of, key_of, version_number, version_of
from clusters.base.selectors import parse_selector
from clusters.runtime.own_writes import OwnWrites

log = logging.getLogger(__name__)

Handler = Callable[[Object | None, Object | None], None]
"""Handle a change (before, after): `before` is None for an added object, `after` for a deleted one."""

Index = Callable[[Object], Iterable[str]]
"""Return the values under which an index contains an object."""

FIRST_BACKOFF = 0.1  # s
LARGEST_BACKOFF = 10.0  # s
_BACKOFF = Backoff(FIRST_BACKOFF, LARGEST_BACKOFF)
ABSENT_RECHECK = 60.0  # s until a kind is listed again that the cluster lacks or forbids
CATCH_UP_POLL = 0.05  # s between two checks whether the watch has caught up with the cluster
CATCH_UP_RETRY = 1.0  # s between two lists; the next list lacks an object that was deleted just after the first


def by_owner(obj: Object) -> Iterable[str]:
    """Return the uid of the controlling owner, if any."""
    owner = controller_of(obj)
    return () if owner is None else (owner["uid"],)


class Informer:
    """A copy of the objects of one kind in memory. Never change an object in place.

    `own_writes` overlays it with writes of this process that the watch has not delivered yet. `trim` keeps a part of
    each object. An `optional` informer has no objects while the cluster lacks its kind, or forbids to list it.

    Example:
        informer = Informer(cluster, MODEL)
        informer.subscribe(handle_change)
        await informer.run()
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        *,
        namespace: str | None = None,
        selector: str = "",
        clock: Clock | None = None,
        trim: Trim | None = None,
        optional: bool = False,
    ) -> None:
        self.kind = kind
        self._trim = trim
        self._optional = optional
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
        self.own_writes = OwnWrites(self, self._clock)

    def subscribe(self, handler: Handler) -> None:
        """Call `handler` for every future change, and now for each known object."""
        self._handlers.append(handler)
        for key, obj in list(self._objects.items()):
            self._notify(handler, key, None, obj)

    def add_index(self, name: str, index: Index) -> None:
        """Add an index for `indexed(name, value)`, or replace the one of that name."""
        self._indexes[name] = index
        self._indexed[name] = {}
        for key, obj in self._objects.items():
            for value in _values(index, obj):
                self._indexed[name].setdefault(value, {})[key] = obj

    def get(self, name: str, namespace: str = "") -> Object | None:
        """Return the last observed state of an object, or None."""
        return self._objects.get(Key(namespace, name))

    @property
    def resource_version(self) -> str:
        """Return the cluster's version up to which all changes were observed; "" before the first list."""
        return self._version

    def indexed(self, index: str, value: str) -> list[Object]:
        """Return the objects under `value` of an index. The index `owner` (uid of the controller) always exists."""
        return list(self._indexed[index].get(value, {}).values())

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def is_synced(self) -> bool:
        """Whether the first list has been read."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Return once the first list has been read."""
        await self._synced.wait()

    async def caught_up(self) -> None:
        """Return once the current state of the cluster has been observed, as a new leader needs after another writer.

        Resource versions are compared as numbers (`version_number`). With a dead watch this waits until the watch is
        replaced.
        """
        while not await self._reaches(await self._present()):
            log.info("the watch of %s is behind the cluster: waiting for it", self.kind)

    async def run(self) -> None:
        """List and watch until cancelled. Raises Invalid for a malformed selector, which no retry can help."""
        parse_selector(self._selector)
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                self._replace(await self._list())
                await self._watch()
            except ClusterError as error:
                if self._optional and isinstance(error, NotFound | Forbidden):
                    self._replace(ObjectList((), ""))
                    await self._clock.sleep(ABSENT_RECHECK)
                    continue
                if self._clock.monotonic() - began >= LARGEST_BACKOFF:  # it worked in between
                    failures = 0
                await self._clock.sleep(self._pause(error, _BACKOFF.delay(failures)))
                failures += 1

    def _pause(self, error: ClusterError, backoff: float) -> float:
        """Return the seconds until the next list."""
        if isinstance(error, Gone):
            log.info("the watch history of %s has expired: listing again in %.1f s", self.kind, backoff)
            return backoff
        pause = (error.retry_after if isinstance(error, Unavailable) else None) or backoff
        log.warning("cannot list or watch %s (%s): again in %.1f s", self.kind, error, pause)
        return pause

    async def _watch(self) -> None:
        """Watch from the version of the list; a watch that ends without error is resumed from its last version."""
        while True:
            silent = True
            async for event in self._cluster.watch(self.kind, self._version, self._namespace, self._selector):
                silent = False
                self._version = version_of(event.object) or self._version
                if event.type == "BOOKMARK":
                    continue
                kept = event.object if self._trim is None else self._trim(event.object)
                self._set(key_of(event.object), None if event.type == "DELETED" else kept)
            if silent:  # do not restart a watch that ends at once in a tight loop
                await self._clock.sleep(FIRST_BACKOFF)

    async def _present(self) -> ObjectList:
        while True:
            try:
                return await self._list()
            except ClusterError as error:
                log.warning("cannot list %s: %s", self.kind, error)
            await self._clock.sleep(CATCH_UP_RETRY)

    async def _list(self) -> ObjectList:
        return await self._cluster.list(self.kind, self._namespace, self._selector, trim=self._trim)

    async def _reaches(self, present: ObjectList) -> bool:
        """Return whether the watch observes this state within `CATCH_UP_RETRY`."""
        deadline = self._clock.monotonic() + CATCH_UP_RETRY
        while self._is_behind(present):
            if self._clock.monotonic() >= deadline:
                return False
            await self._clock.sleep(CATCH_UP_POLL)
        return True

    def _is_behind(self, present: ObjectList) -> bool:
        """Return whether a change or deletion before the list has not been observed yet."""
        there = {key_of(obj): version_number(version_of(obj)) for obj in present.items}
        seen = {key: version_number(version_of(obj)) for key, obj in self._objects.items()}
        listed_at = version_number(present.resource_version)
        return any(seen.get(key, -1) < version for key, version in there.items()) or any(
            version <= listed_at and key not in there for key, version in seen.items()
        )

    def _replace(self, snapshot: ObjectList) -> None:
        """Replace all objects by a snapshot: objects that it lacks were deleted."""
        fresh = {key_of(obj): obj for obj in snapshot.items}
        for key in [key for key in self._objects if key not in fresh]:
            self._set(key, None)
        for key, obj in fresh.items():
            known = self._objects.get(key)
            if known is None or version_of(known) != version_of(obj):
                self._set(key, obj)
        self._version = snapshot.resource_version
        self._synced.set()

    def _set(self, key: Key, obj: Object | None) -> None:
        former = self._objects.pop(key, None)
        if obj is not None:
            self._objects[key] = obj
        for name, index in self._indexes.items():
            self._reindex(self._indexed[name], index, key, former, obj)
        if former is None and obj is None:
            return
        for handler in self._handlers:
            self._notify(handler, key, former, obj)

    def _notify(self, handler: Handler, key: Key, former: Object | None, obj: Object | None) -> None:
        """Call a handler. Its failure for one object must not end the watch of all others."""
        try:
            handler(former, obj)
        except Exception:
            log.exception("internal error: a change of %s %s was not handled", self.kind, key)

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
    """Return the index values of an object; none where the index function fails."""
    try:
        return list(index(obj)) if obj is not None else []
    except Exception:
        log.exception("internal error: an object is missing from an index")
        return []


class Informers:
    """The informers of one process, one for each kind, shared by its controllers.

    `namespace` restricts all of them (None: all namespaces); `selectors` restricts some kinds by labels.
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
        """Run all existing informers until cancelled. Use `informers[kind]` before to create them."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run(), name=f"informer {informer.kind}")

    async def synced(self) -> None:
        """Return once every informer has read its first list."""
        for informer in self._informers.values():
            await informer.synced()

    async def caught_up(self) -> None:
        """Return once every informer has observed the current state of the cluster."""
        await asyncio.gather(*(informer.caught_up() for informer in self))


class InformerSets:
    """Several `Informers` with different selectors or namespaces, run as one.

    Nothing waits for the set `later`: the process works without it, though worse, and may lack the permission.
    """

    def __init__(self, *sets: Informers, later: Informers | None = None) -> None:
        self._sets = sets
        self._all = sets if later is None else (*sets, later)

    def __iter__(self) -> Iterator[Informer]:
        return (informer for informers in self._all for informer in informers)

    async def run(self) -> None:
        """Run all existing informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informers in self._all:
                group.create_task(informers.run())

    async def synced(self) -> None:
        """Return once every informer has read its first list, except those of `later`."""
        for informers in self._sets:
            await informers.synced()

    async def caught_up(self) -> None:
        """Return once every informer, except those of `later`, has observed the current state of the cluster."""
        await asyncio.gather(*(informers.caught_up() for informers in self._sets))


__all__ = ["Handler", "Index", "Informer", "InformerSets", "Informers", "by_owner"]
