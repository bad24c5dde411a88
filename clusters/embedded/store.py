"""The store of the embedded cluster: all objects in memory, every write on disk before it is answered or seen.

Writes that arrive while a commit is under way are gathered and committed together (one fsync for all of them). A batch
is decided on the event loop, against the committed state plus what the batch itself wrote; one thread commits it; only
then memory changes, watchers hear of it and the callers get their answers. A failed commit leaves no trace.

Objects are shared values: lists, watchers and informers all hold the same dict, which nobody changes in place.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVarTuple, Unpack
from weakref import WeakSet

import msgspec

from clusters.embedded.batch import Batch, Mutate, Write
from clusters.embedded.database import Database, Row, StoreError
from clusters.embedded.history import Change, History
from clusters.embedded.watch import BOOKMARK_EVERY, Filter, Watch
from clusters.errors import Gone, Unavailable
from clusters.managed_fields import share_field_sets
from clusters.objects import Key, Kind, Object

log = logging.getLogger(__name__)

LARGEST_BATCH = 64
"""Writes in one transaction: bounds how long the event loop decides in one go (some 10 ms)."""
Observer = Callable[[Change], None]

Ts = TypeVarTuple("Ts")


class Store:
    """Objects by kind and key, one global version, a bounded history for watchers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version = database.version()
        self._objects: dict[str, dict[Key, Object]] = {}
        for row in database.load():
            self._objects.setdefault(row.resource, {})[row.key] = _decode(row, database.path)
        self._history = History(self._version)
        self._watches: dict[str, WeakSet[Watch]] = {}
        self._observers: list[Observer] = []
        self._waiting: deque[Write] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._closed = False  # no more writes
        self._open = True  # the file

    @classmethod
    def open(cls, path: Path) -> Store:
        """The store in the file `path`, made when absent. Raises StoreError for a file that cannot be used."""
        database = Database.open(path)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    @property
    def version(self) -> int:
        """The resourceVersion of the last committed write."""
        return self._version

    def get(self, kind: Kind, key: Key) -> Object | None:
        """The committed object, or None."""
        return self.of_kind(kind).get(key)

    def of_kind(self, kind: Kind) -> Mapping[Key, Object]:
        """All committed objects of the kind; a live view: do not wait while iterating."""
        return self._objects.setdefault(kind.resource, {})

    def everything(self) -> Iterator[tuple[str, Object]]:
        """Every committed object with its resource (`plural.group`); do not wait while iterating."""
        for resource, objects in self._objects.items():
            for obj in objects.values():
                yield resource, obj

    def subscribe(self, observer: Observer) -> None:
        """Call `observer` with every change from now on, after its commit, in order."""
        self._observers.append(observer)

    async def update(self, kind: Kind, key: Key, mutate: Mutate, *, dry_run: bool = False) -> Object:
        """Replace the object by what `mutate` makes of it, atomically; returns it (its last state when removed).

        `mutate` is called once, with the state after all earlier writes; what it raises is raised here. Raises
        Unavailable when the write is not on disk, Invalid when the object is too large or no JSON.
        """
        if self._closed:
            raise Unavailable("the cluster is stopped: start it with `knodel up`")
        write = Write(kind, key, mutate, dry_run, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all(), name="store commit")
        return await write.future

    def watch(self, kind: Kind, version: int | None, sees: Filter) -> Watch:
        """Changes after `version`, in order; None: first all present objects as ADDED. The watch raises Gone."""
        watches = self._watches.setdefault(kind.resource, WeakSet())
        watch = Watch(kind, self._version if version is None else version, sees, watches.discard)
        if version is None:
            for obj in self.of_kind(kind).values():
                watch.put_present(obj)
        elif not self._history.floor <= version <= self._version:
            watch.fail(Gone(f"version {version} of {kind} is not in the watch history: list again"))
            return watch
        else:
            for change in self._history.since(kind, version):
                watch.replay(self._share(change))
        if self._closed:
            watch.fail(Unavailable("the cluster is stopped"))
        else:
            watches.add(watch)
        return watch

    async def close(self) -> None:
        """Commit what waits, end all watches and close the file. Idempotent."""
        self._closed = True
        if self._committer is not None:
            await asyncio.wait([self._committer])
        if not self._open:
            return
        self._open = False
        for watch in self._all_watches():
            watch.fail(Unavailable("the cluster is stopped"))
        await self._in_thread(self._database.close)
        self._thread.shutdown()

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._commit_some()
        finally:
            self._committer = None

    async def _commit_some(self) -> None:
        writes = [self._waiting.popleft() for _ in range(min(LARGEST_BATCH, len(self._waiting)))]
        batch = Batch(self._version)
        for write in writes:
            batch.decide(write, self.get(write.kind, write.key))
        try:
            if batch.changes:
                await self._in_thread(self._database.write, batch.rows(), batch.version)
        except Unavailable as error:
            for write in writes:  # also those that wrote nothing: what they saw may now be undone
                write.error = error
        except BaseException:  # cancelled, or a fault of ours: what is on disk is not known any more
            self._closed = True
            for write in (*writes, *self._waiting):
                write.error = Unavailable("the cluster stopped in the middle of a write: read again what is there")
                write.answer()
            self._waiting.clear()
            raise
        else:
            self._publish(batch)
        for write in writes:
            write.answer()

    async def _in_thread(self, function: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _publish(self, batch: Batch) -> None:
        """Make the batch visible; first all of it in memory, then told in order."""
        former, self._version = self._version, batch.version
        for change, encoded in batch.changes:
            objects = self._objects.setdefault(change.kind.resource, {})
            if change.removed:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.after
            self._history.append(change, encoded)
        for change, _ in batch.changes:
            self._tell(change)
        if former // BOOKMARK_EVERY != batch.version // BOOKMARK_EVERY:
            for watch in self._all_watches():
                watch.bookmark(batch.version)

    def _tell(self, change: Change) -> None:
        for watch in list(self._watches.get(change.kind.resource, ())):
            watch.offer(change)
        for observer in self._observers:
            try:
                observer(change)
            except Exception:  # the write stands, and its caller must hear so
                log.exception("an observer failed at %s %s", change.kind, change.key)

    def _all_watches(self) -> list[Watch]:
        return [watch for watches in self._watches.values() for watch in watches]

    def _share(self, change: Change) -> Change:
        """The change with the present object in place of its decoded twin, where they are the same version."""
        present = self.get(change.kind, change.key)
        if change.removed or present is None or present["metadata"]["resourceVersion"] != str(change.version):
            return change
        before = present if change.before is change.after else change.before
        return Change(change.version, change.kind, before, present, removed=False)


def _decode(row: Row, path: Path) -> Any:
    try:
        obj = msgspec.json.decode(row.value or b"")
        share_field_sets(obj)
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"the state file {path} is corrupt at {row.resource} {row.key}: {error}") from error
    return obj
