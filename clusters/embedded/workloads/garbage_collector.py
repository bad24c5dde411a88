"""The garbage collector: delete objects whose owners have all been deleted (background propagation).

It is driven by changes of the store. At the start it checks all objects once, for those that a crash left behind.
Rules: https://kubernetes.io/docs/concepts/architecture/garbage-collection/.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from clusters.base.objects import Key, Kind, Object, is_deleting, key_of, uid_of
from clusters.embedded.store.history import ObjectChange
from clusters.embedded.store.store import Store
from clusters.embedded.workloads.object_deleter import ObjectDeleter, kind_of

Dependent = tuple[Kind, Key]


class GarbageCollector:
    """Track owner references and delete objects without a living owner."""

    def __init__(self, store: Store, deleter: ObjectDeleter) -> None:
        self._store = store
        self._deleter = deleter
        self._existing: set[str] = set()  # uids of all objects
        self._dependents: dict[str, set[Dependent]] = {}  # by the owner's uid
        self._queue: dict[Dependent, None] = {}  # objects to check, in order of arrival
        self._queued = asyncio.Event()
        for resource, obj in store.everything():
            self._existing.add(uid_of(obj))
            self._add_dependent(kind_of(resource, obj), obj)
        for dependents in self._dependents.values():
            self._enqueue(dependents)
        store.subscribe(self._on_change)

    async def run(self) -> None:
        """Delete orphaned objects until cancelled."""
        while True:
            await self._queued.wait()
            self._queued.clear()
            queue, self._queue = self._queue, {}
            found = ((kind, self._store.get(kind, key)) for kind, key in queue)
            await self._deleter.delete_all(
                (kind, obj) for kind, obj in found if obj is not None and self._is_orphaned(obj)
            )

    def _on_change(self, change: ObjectChange) -> None:
        if change.removed:
            self._existing.discard(uid_of(change.after))
            self._remove_dependent(change.kind, change.before or change.after)
            self._enqueue(self._dependents.get(uid_of(change.after), ()))
            return
        if change.before is None:
            self._existing.add(uid_of(change.after))
        elif _owners(change.before) != _owners(change.after):
            self._remove_dependent(change.kind, change.before)
        self._add_dependent(change.kind, change.after)
        if self._is_orphaned(change.after):  # created after its owner was deleted
            self._enqueue([(change.kind, change.key)])

    def _enqueue(self, dependents: Iterable[Dependent]) -> None:
        self._queue.update(dict.fromkeys(dependents))
        if self._queue:
            self._queued.set()

    def _is_orphaned(self, obj: Object) -> bool:
        """Return whether the object has owners, none of which exists."""
        owners = _owners(obj)
        return bool(owners) and self._existing.isdisjoint(owners) and not is_deleting(obj)

    def _add_dependent(self, kind: Kind, obj: Object) -> None:
        for owner in _owners(obj):
            self._dependents.setdefault(owner, set()).add((kind, key_of(obj)))

    def _remove_dependent(self, kind: Kind, obj: Object) -> None:
        for owner in _owners(obj):
            dependents = self._dependents.get(owner, set())
            dependents.discard((kind, key_of(obj)))
            if not dependents:
                self._dependents.pop(owner, None)


def _owners(obj: Object) -> frozenset[str]:
    references = obj["metadata"].get("ownerReferences")
    return frozenset(reference["uid"] for reference in references or ())
