"""The store of the embedded cluster: all objects in memory, every write on disk before it is answered or seen.

Writes that arrive while a commit is under way are gathered and committed together (one fsync for all of them). A batch
is decided on the event loop, against the committed state plus what the batch itself wrote; one thread commits it; only
then memory changes, watchers hear of it and the callers get their answers. A failed commit leaves no trace.

Objects are shared values: lists, watchers and informers all hold the same dict, which nobody changes in place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any, TypeVarTuple, Unpack
from weakref import WeakSet

import msgspec

from clusters.base.errors import Gone, Unavailable
from clusters.base.managed_fields import share_field_sets
from clusters.base.objects import Key, Kind, Object
from clusters.embedded.store.batch import Batch, Mutate, Write
from clusters.embedded.store.database import Database, Row, StoreError
from clusters.embedded.store.history import Change, History
from clusters.embedded.store.watch import BOOKMARK_EVERY, Filter, Watch

log = logging.getLogger(__name__)

LARGEST_BATCH = 512
"""Writes in one transaction."""
LONGEST_DECISION = 0.01
"""s that the event loop decides on writes in one go; what waits then is in the next transaction."""
Observer = Callable[[Change], None]

Ts = TypeVarTuple("Ts")


class Store:
    """Objects by kind and key, one global version, a bounded history for watchers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version = database.version()
        self._objects: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        for row in database.load():
            self._objects[row.resource][row.key] = _decode(row, database.path)
        self._history = History(self._version)
        self._watches: dict[str, WeakSet[Watch]] = {}
        self._observers: list[Observer] = []
        self._waiting: deque[Write] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._trouble = ""  # of the last commit
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
        objects = self._objects.get(kind.resource)
        return None if objects is None else objects.get(key)

    def of_kind(self, kind: Kind) -> Mapping[Key, Object]:
        """All committed objects of the kind; a live view: do not wait while iterating."""
        return self._objects[kind.resource]

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
        future: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        self._enqueue([Write(kind, key, mutate, dry_run, future)])
        return await future

    async def update_all(self, kind: Kind, updates: Iterable[tuple[Key, Mutate]]) -> Sequence[Object | Exception]:
        """Several updates that wait once: of each, in order, what `update` returns, or the error that it raises.

        They are decided one after the other, not as one transaction. Raises Unavailable when the cluster is stopped.
        """
        writes = [Write(kind, key, mutate, dry_run=False) for key, mutate in updates]
        if not writes:
            return ()
        last = writes[-1].future = asyncio.get_running_loop().create_future()
        self._enqueue(writes)
        with contextlib.suppress(Exception):  # it is in the write
            await last  # answers come in order
        return [write.outcome() for write in writes]

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

    async def trouble(self) -> str:
        """Why nothing can be written, such as a full disk; empty when it can. After a failure this tries anew."""
        if self._closed:
            return self._trouble or "the store is closed: start the platform anew"
        if self._trouble:
            try:
                await self._in_thread(self._database.try_write)
            except Unavailable as error:
                self._fail(error)
            else:
                self._succeed()
        return self._trouble

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

    def _enqueue(self, writes: Iterable[Write]) -> None:
        if self._closed:
            raise Unavailable("the cluster is stopped: start it with `knodel up`")
        self._waiting.extend(writes)
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all(), name="store commit")

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._commit_some()
        finally:
            self._committer = None

    async def _commit_some(self) -> None:
        batch = Batch(self._version)
        writes = self._decide_some(batch)
        try:
            if batch.changes:
                await self._in_thread(self._database.write, batch.rows(), batch.version)
        except Unavailable as error:
            self._fail(error)
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
            self._publish(batch)  # what is on disk is told, whatever comes after
            if batch.changes and self._trouble and self._database.has_room():
                self._succeed()
        for write in writes:
            if write.future is not None:
                write.answer()

    def _decide_some(self, batch: Batch) -> list[Write]:
        """Writes that waited, decided; at least one."""
        writes: list[Write] = []
        enough = monotonic() + LONGEST_DECISION
        while self._waiting and len(writes) < LARGEST_BATCH and (not writes or monotonic() < enough):
            write = self._waiting.popleft()
            batch.decide(write, self.get(write.kind, write.key))
            writes.append(write)
        return writes

    def _fail(self, error: Unavailable) -> None:
        if not self._trouble:
            log.error("%s: until it can be written again, nothing changes", error)
        self._trouble = str(error)

    def _succeed(self) -> None:
        log.info("the state file can be written again")
        self._trouble = ""

    async def _in_thread(self, function: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _publish(self, batch: Batch) -> None:
        """Make the batch visible; first all of it in memory, then told in order."""
        former, self._version = self._version, batch.version
        of_resource: defaultdict[str, list[Change]] = defaultdict(list)
        for change, encoded in batch.changes:
            of_resource[change.kind.resource].append(change)
            objects = self._objects[change.kind.resource]
            if change.removed:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.after
            self._history.append(change, encoded)
        for resource, changes in of_resource.items():
            for watch in list(self._watches.get(resource, ())):
                watch.offer(changes)
        for change, _ in batch.changes:
            self._tell(change)
        if former // BOOKMARK_EVERY != batch.version // BOOKMARK_EVERY:
            for watch in self._all_watches():
                watch.bookmark(batch.version)

    def _tell(self, change: Change) -> None:
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
        return Change(change.version, change.kind, change.key, before, present, removed=False)


def _decode(row: Row, path: Path) -> Any:
    try:
        obj = msgspec.json.decode(row.value or b"")
        share_field_sets(obj)
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"the state file {path} is corrupt at {row.resource} {row.key}: {error}") from error
    return obj
