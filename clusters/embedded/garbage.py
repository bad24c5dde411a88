"""Garbage collection of the embedded cluster: what has lost its owners, what is in a dying namespace, and old Events.

Driven by the store's changes, so it costs nothing while nothing changes; at the start it looks at everything once, for
what a crash left behind. Rules: https://kubernetes.io/docs/concepts/architecture/garbage-collection/ (background).
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from clusters.api import Cluster
from clusters.clock import Clock
from clusters.embedded.history import Change
from clusters.embedded.store import Store
from clusters.embedded.writes import CONTENTS_FINALIZER
from clusters.errors import Conflict, NotFound, Unavailable
from clusters.objects import (
    EVENT,
    KINDS,
    NAMESPACE,
    Key,
    Kind,
    Object,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    parse_timestamp,
    uid_of,
)

log = logging.getLogger(__name__)

EVENT_LIFETIME = timedelta(hours=1)
"""Kubernetes' default `--event-ttl`."""
MOST_EVENTS = 1000
"""Events kept at all; the oldest go first. Memory: some 3 kB each."""
EVENT_SLACK = 100
"""How far above `MOST_EVENTS` a burst may go before it is cut at once."""
EVENT_PERIOD = 60.0
"""s between looks at the Events' age."""
RETRY = 1.0
"""s until a deletion that could not be written is tried again."""

_KINDS = {kind.resource: kind for kind in KINDS}

Victim = tuple[Kind, Key, str]
"""Kind, key and uid of an object to delete."""


class Collector:
    """Deletes, in the background, what nobody should keep."""

    def __init__(self, cluster: Cluster, store: Store, clock: Clock) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._living: set[str] = set()
        self._dependents: dict[str, set[Victim]] = {}  # by the owner's uid
        self._victims: asyncio.Queue[Victim] = asyncio.Queue()
        self._emptying: asyncio.Queue[str] = asyncio.Queue()  # namespaces that may be done
        self._crowded = asyncio.Event()
        store.subscribe(self._observe)
        for resource, obj in store.everything():
            self._living.add(uid_of(obj))
            self._note_owners(_kind(resource, obj), obj)

    async def run(self) -> None:
        """Collect until cancelled."""
        self._look_at_everything()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._delete_victims(), name="garbage collector")
            group.create_task(self._empty_namespaces(), name="namespace collector")
            group.create_task(self._expire_in_time(), name="event expiry")
            group.create_task(self._expire_in_crowds(), name="event limit")

    def _observe(self, change: Change) -> None:
        uid = uid_of(change.after)
        if change.removed:
            self._living.discard(uid)
            self._forget_owners(change.kind, change.before or change.after)
            for victim in self._dependents.get(uid, ()):
                self._victims.put_nowait(victim)
        else:
            self._living.add(uid)
            self._renew_owners(change)
            if self._is_orphan(change.after):  # made after its owner went
                self._victims.put_nowait((change.kind, change.key, uid))
        self._observe_namespaces(change)
        if change.kind == EVENT and len(self._store.of_kind(EVENT)) > MOST_EVENTS + EVENT_SLACK:
            self._crowded.set()

    def _observe_namespaces(self, change: Change) -> None:
        if change.kind == NAMESPACE:
            if is_deleting(change.after) and not change.removed:
                self._emptying.put_nowait(name_of(change.after))
        elif change.removed:
            namespace = self._store.get(NAMESPACE, Key("", namespace_of(change.after)))
            if namespace is not None and is_deleting(namespace):
                self._emptying.put_nowait(name_of(namespace))

    def _look_at_everything(self) -> None:
        for resource, obj in self._store.everything():
            kind = _kind(resource, obj)
            if self._is_orphan(obj):
                self._victims.put_nowait((kind, key_of(obj), uid_of(obj)))
            if kind == NAMESPACE and is_deleting(obj):
                self._emptying.put_nowait(name_of(obj))

    def _is_orphan(self, obj: Object) -> bool:
        """Whether it has owners, and all of them are gone."""
        owners = _owners(obj)
        return bool(owners) and self._living.isdisjoint(owners) and not is_deleting(obj)

    def _renew_owners(self, change: Change) -> None:
        if change.before is not None:
            if _owners(change.before) == _owners(change.after):
                return
            self._forget_owners(change.kind, change.before)
        self._note_owners(change.kind, change.after)

    def _note_owners(self, kind: Kind, obj: Object) -> None:
        for owner in _owners(obj):
            self._dependents.setdefault(owner, set()).add((kind, key_of(obj), uid_of(obj)))

    def _forget_owners(self, kind: Kind, obj: Object) -> None:
        for owner in _owners(obj):
            dependents = self._dependents.get(owner, set())
            dependents.discard((kind, key_of(obj), uid_of(obj)))
            if not dependents:
                self._dependents.pop(owner, None)

    async def _delete_victims(self) -> None:
        while True:
            kind, key, uid = await self._victims.get()
            present = self._store.get(kind, key)
            if present is not None and uid_of(present) == uid and self._is_orphan(present):
                await self._delete(kind, present)

    async def _empty_namespaces(self) -> None:
        while True:
            name = await self._emptying.get()
            namespace = self._store.get(NAMESPACE, Key("", name))
            if namespace is None or not is_deleting(namespace):
                continue
            contents = [
                (_kind(resource, obj), obj) for resource, obj in self._store.everything() if namespace_of(obj) == name
            ]
            for kind, obj in contents:
                if not is_deleting(obj):
                    await self._delete(kind, obj)
            if not contents:
                await self._release(namespace)

    async def _release(self, namespace: Object) -> None:
        finalizers = namespace["metadata"].get("finalizers") or ()
        left = [finalizer for finalizer in finalizers if finalizer != CONTENTS_FINALIZER]
        patch = {"metadata": {"uid": uid_of(namespace), "finalizers": left}}
        try:
            await self._cluster.patch(NAMESPACE, name_of(namespace), patch, manager="namespace-collector")
        except (NotFound, Conflict):
            log.debug("namespace %s changed meanwhile", name_of(namespace))
        except Unavailable as error:
            log.warning("cannot release namespace %s (%s): again in %.0f s", name_of(namespace), error, RETRY)
            await self._clock.sleep(RETRY)
            self._emptying.put_nowait(name_of(namespace))

    async def _delete(self, kind: Kind, obj: Object) -> None:
        """Delete this very object; tried until it is written."""
        while True:
            try:
                await self._cluster.delete(kind, name_of(obj), namespace_of(obj), uid=uid_of(obj))
                return
            except (NotFound, Conflict):
                return  # gone, or another object of that name stands there now
            except Unavailable as error:
                log.warning("cannot collect %s %s (%s): again in %.0f s", kind, key_of(obj), error, RETRY)
                await self._clock.sleep(RETRY)

    async def _expire_in_time(self) -> None:
        while True:
            await self._expire()
            await self._clock.sleep(EVENT_PERIOD)

    async def _expire_in_crowds(self) -> None:
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            await self._expire()

    async def _expire(self) -> None:
        events = sorted(self._store.of_kind(EVENT).values(), key=_last_seen)
        oldest = (self._clock.now() - EVENT_LIFETIME).isoformat()
        for index, event in enumerate(events):
            if len(events) - index > MOST_EVENTS or _last_seen(event) < oldest:
                await self._delete(EVENT, event)


def _last_seen(event: Object) -> str:
    """When the Event happened last, ISO 8601 in UTC (so that texts compare as times do)."""
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return parse_timestamp(str(text)).isoformat()


def _owners(obj: Object) -> frozenset[str]:
    return frozenset(reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ())


def _kind(resource: str, obj: Object) -> Kind:
    """The kind of a stored object, also one that only an extension knows."""
    known = _KINDS.get(resource)
    if known is not None:
        return known
    plural, _, group = resource.partition(".")
    return Kind(group, str(obj["apiVersion"]).rpartition("/")[2], obj["kind"], plural, bool(namespace_of(obj)))
