"""Garbage collection: objects whose owners are all gone are deleted (background propagation).

Driven by the store's changes, so it costs nothing while nothing changes; at the start it looks at everything once, for
what a crash left behind. Rules: https://kubernetes.io/docs/concepts/architecture/garbage-collection/.
"""

from __future__ import annotations

import asyncio

from clusters.base.objects import Key, Kind, Object, is_deleting, key_of, uid_of
from clusters.embedded.store.history import Change
from clusters.embedded.store.store import Store
from clusters.embedded.workloads.reaper import Reaper, kind_of

Dependent = tuple[Kind, Key]


class Collector:
    """Knows who owns whom, and deletes orphans."""

    def __init__(self, store: Store, reaper: Reaper) -> None:
        self._store = store
        self._reaper = reaper
        self._living: set[str] = set()  # uids
        self._dependents: dict[str, set[Dependent]] = {}  # by the owner's uid
        self._suspects: dict[Dependent, None] = {}  # in order of arrival
        self._suspected = asyncio.Event()
        for resource, obj in store.everything():
            self._living.add(uid_of(obj))
            self._note_owners(kind_of(resource, obj), obj)
        for dependents in self._dependents.values():
            self._suspect(dependents)
        store.subscribe(self._observe)

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            await self._suspected.wait()
            self._suspected.clear()
            suspects, self._suspects = self._suspects, {}
            present = ((kind, self._store.get(kind, key)) for kind, key in suspects)
            await self._reaper.delete_all((kind, obj) for kind, obj in present if obj is not None and self._orphan(obj))

    def _observe(self, change: Change) -> None:
        if change.removed:
            self._living.discard(uid_of(change.after))
            self._forget_owners(change.kind, change.before or change.after)
            self._suspect(self._dependents.get(uid_of(change.after), ()))
            return
        if change.before is None:
            self._living.add(uid_of(change.after))
        elif _owners(change.before) != _owners(change.after):
            self._forget_owners(change.kind, change.before)
        self._note_owners(change.kind, change.after)
        if self._orphan(change.after):  # made after its owner went
            self._suspect([(change.kind, change.key)])

    def _suspect(self, dependents: set[Dependent] | list[Dependent] | tuple[()]) -> None:
        self._suspects.update(dict.fromkeys(dependents))
        if self._suspects:
            self._suspected.set()

    def _orphan(self, obj: Object) -> bool:
        """Whether it has owners, and all of them are gone."""
        owners = _owners(obj)
        return bool(owners) and self._living.isdisjoint(owners) and not is_deleting(obj)

    def _note_owners(self, kind: Kind, obj: Object) -> None:
        for owner in _owners(obj):
            self._dependents.setdefault(owner, set()).add((kind, key_of(obj)))

    def _forget_owners(self, kind: Kind, obj: Object) -> None:
        for owner in _owners(obj):
            dependents = self._dependents.get(owner, set())
            dependents.discard((kind, key_of(obj)))
            if not dependents:
                self._dependents.pop(owner, None)


def _owners(obj: Object) -> frozenset[str]:
    references = obj["metadata"].get("ownerReferences")
    return frozenset(reference["uid"] for reference in references) if references else _NOBODY


_NOBODY: frozenset[str] = frozenset()
