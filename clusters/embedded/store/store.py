"""The store of the embedded cluster: all objects in memory, and every write on disk before it is visible.

Writes that arrive during a commit are committed together, with one fsync. The mutations of a batch run on the event
loop, on the committed state plus the earlier writes of the batch. One thread commits the batch. After that, memory
changes, watchers are notified and the callers get their results. A failed commit has no effect.

Objects are shared: lists, watchers and informers have the same dicts, which must not be modified.
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
from clusters.embedded.store.history import History, ObjectChange
from clusters.embedded.store.watch import BOOKMARK_EVERY, Filter, Watch

log = logging.getLogger(__name__)

LARGEST_BATCH = 512
"""Maximum number of writes in a transaction."""
LONGEST_DECISION = 0.01
"""Maximum s that the event loop runs mutations without a pause; the remaining writes are in the next transaction."""
Observer = Callable[[ObjectChange], None]

Ts = TypeVarTuple("Ts")


class Store:
    """Objects by kind and key, with one global version and a bounded history for watchers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version = database.version()
        self._objects: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        for row in database.load():
            self._objects[row.resource][row.key] = _decode(row, database.path)
        self._history = History(self._version)
        self._watches: dict[str, WeakSet[Watch]] = {}
        self._observers: list[Observer] = []
        self._pending: deque[Write] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._write_error = ""  # of the last commit, or empty
        self._closed = False  # whether writes are rejected
        self._open = True  # whether the file is open

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open the store in the file `path`, which is created if absent. Raises StoreError for an unusable file."""
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
        """Return the committed object, or None."""
        objects = self._objects.get(kind.resource)
        return None if objects is None else objects.get(key)

    def of_kind(self, kind: Kind) -> Mapping[Key, Object]:
        """Return all committed objects of the kind: a live view, so do not await while iterating."""
        return self._objects[kind.resource]

    def everything(self) -> Iterator[tuple[str, Object]]:
        """Yield every committed object with its resource (`plural.group`); do not await while iterating."""
        for resource, objects in self._objects.items():
            for obj in objects.values():
                yield resource, obj

    def subscribe(self, observer: Observer) -> None:
        """Call `observer` with every later change, after its commit, in order."""
        self._observers.append(observer)

    async def update(self, kind: Kind, key: Key, mutate: Mutate, *, dry_run: bool = False) -> Object:
        """Replace the object by the result of `mutate`, atomically. Return it, or its last state when it was removed.

        `mutate` is called once, with the state after all earlier writes; its errors are raised here. Raises Unavailable
        when the write is not on disk, and Invalid when the object is too large or not JSON.
        """
        future: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        self._enqueue([Write(kind, key, mutate, dry_run, future)])
        return await future

    async def update_all(self, kind: Kind, updates: Iterable[tuple[Key, Mutate]]) -> Sequence[Object | Exception]:
        """Run several updates with one wait. Return for each, in order, the result or the error of `update`.

        They are not one transaction. Raises Unavailable when the cluster is stopped.
        """
        writes = [Write(kind, key, mutate, dry_run=False) for key, mutate in updates]
        if not writes:
            return ()
        last = writes[-1].future = asyncio.get_running_loop().create_future()
        self._enqueue(writes)
        with contextlib.suppress(Exception):  # `outcome` returns it
            await last  # writes are resolved in order
        return [write.outcome() for write in writes]

    def watch(self, kind: Kind, version: int | None, matching: Filter) -> Watch:
        """Return the changes after `version`, in order.

        None: begin with all present objects as ADDED. The watch raises Gone.
        """
        watches = self._watches.setdefault(kind.resource, WeakSet())
        watch = Watch(kind, self._version if version is None else version, matching, watches.discard)
        if version is None:
            for obj in self.of_kind(kind).values():
                watch.add_existing(obj)
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

    async def write_error(self) -> str:
        """Return why writes fail, for example a full disk, or an empty string.

        After a failure this tries to write again.
        """
        if self._closed:
            return self._write_error or "the store is closed: restart the platform"
        if self._write_error:
            try:
                await self._in_thread(self._database.try_write)
            except Unavailable as error:
                self._fail(error)
            else:
                self._succeed()
        return self._write_error

    async def close(self) -> None:
        """Commit pending writes, end all watches and close the file. Idempotent."""
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
        self._pending.extend(writes)
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all(), name="store commit")

    async def _commit_all(self) -> None:
        try:
            while self._pending:
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
            for write in writes:  # also those without a change, which may have read a state that was not committed
                write.error = error
        except BaseException:  # cancelled, or a bug: the state on disk is unknown
            self._closed = True
            for write in (*writes, *self._pending):
                write.error = Unavailable("the cluster stopped during a write: read the object again")
                write.resolve()
            self._pending.clear()
            raise
        else:
            self._publish(batch)
            if batch.changes and self._write_error and self._database.has_room():
                self._succeed()
        for write in writes:
            if write.future is not None:
                write.resolve()

    def _decide_some(self, batch: Batch) -> list[Write]:
        """Run the mutations of pending writes, at least of one."""
        writes: list[Write] = []
        deadline = monotonic() + LONGEST_DECISION
        while self._pending and len(writes) < LARGEST_BATCH and (not writes or monotonic() < deadline):
            write = self._pending.popleft()
            batch.decide(write, self.get(write.kind, write.key))
            writes.append(write)
        return writes

    def _fail(self, error: Unavailable) -> None:
        if not self._write_error:
            log.error("%s: all writes fail until this is resolved", error)
        self._write_error = str(error)

    def _succeed(self) -> None:
        log.info("the state file is writable again")
        self._write_error = ""

    async def _in_thread(self, function: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _publish(self, batch: Batch) -> None:
        """Make the batch visible: update memory completely, and then notify watchers and observers in order."""
        former, self._version = self._version, batch.version
        of_resource: defaultdict[str, list[ObjectChange]] = defaultdict(list)
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
            for observer in self._observers:
                try:
                    observer(change)
                except Exception:  # the write is committed, and its caller must get the result
                    log.exception("an observer failed at %s %s", change.kind, change.key)
        if former // BOOKMARK_EVERY != batch.version // BOOKMARK_EVERY:
            for watch in self._all_watches():
                watch.bookmark(batch.version)

    def _all_watches(self) -> list[Watch]:
        return [watch for watches in self._watches.values() for watch in watches]

    def _share(self, change: ObjectChange) -> ObjectChange:
        """Return the change with the present object instead of its decoded copy, if they have the same version."""
        present = self.get(change.kind, change.key)
        if change.removed or present is None or present["metadata"]["resourceVersion"] != str(change.version):
            return change
        before = present if change.before is change.after else change.before
        return ObjectChange(change.version, change.kind, change.key, before, present, removed=False)


def _decode(row: Row, path: Path) -> Any:
    try:
        obj = msgspec.json.decode(row.value or b"")
        share_field_sets(obj)
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"the state file {path} is corrupt at {row.resource} {row.key}: {error}") from error
    return obj
