"""The store of the embedded cluster: all objects in memory, every write on disk before it is answered or seen.

Writes that arrive while a commit is under way are gathered and committed together (one fsync for all of them). A batch
is decided on the event loop, against the committed state plus what the batch itself wrote; one thread commits it; only
then memory changes, watchers hear of it and the callers get their answers. A failed commit leaves no trace.

Objects are shared values: lists, watchers and informers all hold the same dict, which nobody changes in place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

import msgspec

from clusters.embedded.database import Database, Row, StoreError
from clusters.embedded.history import Change, History
from clusters.embedded.watch import Filter, Watch
from clusters.errors import ClusterError, FieldError, Gone, Invalid, Unavailable
from clusters.objects import Key, Kind, Object

LARGEST_BATCH = 256
"""Writes in one transaction: bounds how long the event loop decides in one go (some 20 ms)."""
LARGEST_OBJECT = 1_572_864
"""Bytes of one object as JSON: etcd's default request limit (1.5 MiB)."""


@dataclass(frozen=True, slots=True)
class Remove:
    """What a mutation returns to remove the object; `last` is its last state."""

    last: Object


Mutate = Callable[[Object | None], Object | Remove]
"""From the present object to the wished one. Returning the very object that was given writes nothing."""

Observer = Callable[[Change], None]

_NOTHING: Mapping[Key, Object] = MappingProxyType({})


@dataclass(slots=True)
class _Write:
    kind: Kind
    key: Key
    mutate: Mutate
    dry_run: bool
    answer: asyncio.Future[Object]
    result: Object | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class _Batch:
    """Writes decided but not yet committed."""

    version: int
    heads: dict[tuple[str, Key], Object | None] = field(default_factory=dict)
    changes: list[tuple[Change, bytes]] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """The last state of each object that the batch changed."""
        last = {
            (change.kind.resource, change.key): None if change.removed else encoded for change, encoded in self.changes
        }
        return [Row(resource, key, value) for (resource, key), value in last.items()]


class Store:
    """Objects by kind and key, one global version, a bounded history for watchers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version = database.version()
        self._objects: dict[str, dict[Key, Object]] = {}
        for row in database.load():
            self._objects.setdefault(row.resource, {})[row.key] = _decode(row, database.path)
        self._history = History(self._version)
        self._watches: WeakSet[Watch] = WeakSet()
        self._observers: list[Observer] = []
        self._waiting: deque[_Write] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._closed = False

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
        return self._objects.get(kind.resource, _NOTHING).get(key)

    def of_kind(self, kind: Kind) -> Mapping[Key, Object]:
        """All committed objects of the kind; a live view: do not wait while iterating."""
        return self._objects.get(kind.resource, _NOTHING)

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
        write = _Write(kind, key, mutate, dry_run, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all(), name="store commit")
        return await write.answer

    def watch(self, kind: Kind, version: int | None, sees: Filter) -> Watch:
        """Changes after `version`, in order; None: first all present objects as ADDED. The watch raises Gone."""
        watch = Watch(kind, self._version if version is None else version, sees, self._watches.discard)
        if version is None:
            for obj in self.of_kind(kind).values():
                watch.put_present(obj)
        elif not self._history.floor <= version <= self._version:
            watch.fail(Gone(f"version {version} of {kind} is not in the watch history: list again"))
            return watch
        else:
            for change in self._history.since(kind, version):
                watch.offer(self._share(change))
        if self._closed:
            watch.fail(Unavailable("the cluster is stopped"))
        else:
            self._watches.add(watch)
        return watch

    async def close(self) -> None:
        """Commit what waits, end all watches and close the file. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._committer is not None:
            await asyncio.shield(self._committer)
        for watch in list(self._watches):
            watch.fail(Unavailable("the cluster is stopped"))
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown()

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._commit_some()
        finally:
            self._committer = None

    async def _commit_some(self) -> None:
        writes = [self._waiting.popleft() for _ in range(min(LARGEST_BATCH, len(self._waiting)))]
        batch = _Batch(self._version)
        for write in writes:
            self._decide(write, batch)
        try:
            if batch.changes:
                await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._database.write, batch.rows(), batch.version
                )
        except BaseException as error:
            # What the others were told may rest on what is now undone: all of the batch fails.
            for write in writes:
                write.error = error if isinstance(error, ClusterError) else Unavailable(f"cannot write: {error}")
            _answer(writes)
            if not isinstance(error, ClusterError):
                raise
            return
        self._publish(batch)
        _answer(writes)

    def _decide(self, write: _Write, batch: _Batch) -> None:
        """Run one mutation against the batch's state; its outcome waits in `write` for the commit."""
        place = (write.kind.resource, write.key)
        before = batch.heads[place] if place in batch.heads else self.get(write.kind, write.key)
        try:
            wanted = write.mutate(before)
            removed = isinstance(wanted, Remove)
            after = wanted.last if isinstance(wanted, Remove) else wanted
            if after is before and not removed:
                write.result = before
                return
            version = batch.version + (0 if write.dry_run else 1)
            encoded = _encode(write, after, batch.version if write.dry_run else version)
        except Exception as error:
            write.error = error
            return
        write.result = after = msgspec.json.decode(encoded)
        if write.dry_run:
            return
        batch.version = version
        batch.heads[place] = None if removed else after
        batch.changes.append((Change(version, write.kind, before, after, removed), encoded))

    def _publish(self, batch: _Batch) -> None:
        self._version = batch.version
        for change, encoded in batch.changes:
            objects = self._objects.setdefault(change.kind.resource, {})
            if change.removed:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.after
            self._history.append(change, encoded)
            for watch in list(self._watches):
                watch.offer(change)
            for observer in self._observers:
                observer(change)

    def _share(self, change: Change) -> Change:
        """The change with the present object in place of its decoded twin, where they are the same version."""
        present = self.get(change.kind, change.key)
        if change.removed or present is None or present["metadata"]["resourceVersion"] != str(change.version):
            return change
        before = present if change.before is change.after else change.before
        return Change(change.version, change.kind, before, present, removed=False)


def _answer(writes: list[_Write]) -> None:
    for write in writes:
        if write.answer.done():  # its caller was cancelled; the write stands all the same
            continue
        if write.error is not None:
            write.answer.set_exception(write.error)
        elif write.result is not None:
            write.answer.set_result(write.result)


def _encode(write: _Write, obj: Object, version: int) -> bytes:
    """JSON with the version in it."""
    what = f"{write.kind} {write.key}"
    stamped = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
    try:
        encoded = msgspec.json.encode(stamped)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(what, [FieldError("", f"it is no JSON: {error}")]) from error
    if len(encoded) > LARGEST_OBJECT:
        raise Invalid(what, [FieldError("", f"it has {len(encoded)} bytes: at most {LARGEST_OBJECT} are allowed")])
    return encoded


def _decode(row: Row, path: Path) -> Any:
    try:
        return msgspec.json.decode(row.value or b"")
    except msgspec.MsgspecError as error:
        raise StoreError(f"the state file {path} is corrupt at {row.resource} {row.key}: {error}") from error
