"""Watch objects: their present state, then every change, over restarts of the server and expired versions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from clusters.base.errors import Gone
from clusters.base.objects import Key, Kind, Object, key_of, version_of
from serving.client.api import ApiCalls
from serving.client.effects import Call, Item, Items, Spawn, now, receive, sleep
from serving.client.errors import Unreachable
from serving.client.models.waiting import PAUSE, Outage

WATCH_DURATION: Final = 300.0
"""s of one watch request; then another one continues it."""
LEAST_OUTAGE = 30.0
"""s for which a watch tolerates a server that does not respond, such as a platform that finishes its requests, ends and
starts again; more if the restart window of the server is longer."""
ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"
"""Types of watch events of the Kubernetes API."""


class Snapshot(NamedTuple):
    """The objects at one moment, in the order of namespace and name, and their changes since the last snapshot.

    A change is (event type, object). The first snapshot has the present objects as ADDED.
    """

    objects: tuple[Object, ...]
    changes: tuple[tuple[str, Object], ...]


def watch_objects(
    api: ApiCalls, kind: Kind, namespace: str | None, *, name: str = "", selector: str = "", tick: float | None = None
) -> Items[Snapshot]:
    """Yield a snapshot at once, one after each change, and one without changes after `tick` seconds of silence.

    `namespace` is None for all namespaces. `name` restricts it to one object, `selector` to objects with labels. The
    operation never ends by itself. It continues after an outage of up to LEAST_OUTAGE. Raises Unreachable, and the
    errors of a list.
    """
    changes = _changes(api, kind, namespace, name, selector)
    if tick is None:
        yield from changes
        return
    yield Spawn("watch", changes)
    last: Snapshot | None = None
    while True:
        message = yield from receive(tick)
        if message is None:
            if last is not None:
                yield Item(last._replace(changes=()))
        elif message.ended:
            if message.error is not None:
                raise message.error
            return
        else:
            last = message.value
            yield Item(message.value)


def _changes(api: ApiCalls, kind: Kind, namespace: str | None, name: str, selector: str) -> Items[Snapshot]:
    known, outage, is_first = _Objects(), Outage(max(api.server.restart_window, LEAST_OUTAGE)), True
    fields = f"metadata.name={name}" if name else ""
    while True:
        try:
            found = yield from api.list(kind, namespace, selector, fields)
            outage.reset()
            if (changes := tuple(known.replace(found["items"]))) or is_first:
                yield Item(Snapshot(known.sorted(), changes))
                is_first = False
            version = str((found.get("metadata") or {}).get("resourceVersion", ""))
            while True:
                lines = yield from api.open_watch(kind, namespace, name, version, WATCH_DURATION, selector)
                outage.reset()
                began = yield from now()
                while event := (yield from api.next_event(lines)):
                    version = version_of(event[1])
                    if event[0] != BOOKMARK:
                        known.apply(*event)
                        yield Item(Snapshot(known.sorted(), (event,)))
                yield from _pause_after(began)
        except Gone:
            continue  # the version has expired: list again
        except Unreachable as error:
            yield from outage.pause(error, math.inf)


def _pause_after(began: float) -> Call[None]:
    """Wait if a watch has ended at once, so that a server without watches is not flooded with requests."""
    if (yield from now()) - began < PAUSE:
        yield from sleep(PAUSE)


class _Objects:
    """The objects by namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}

    def sorted(self) -> tuple[Object, ...]:
        """Return the objects in the order of namespace and name."""
        return tuple(obj for _, obj in sorted(self._objects.items()))

    def apply(self, type: str, obj: Object) -> None:
        """Apply the event of a watch."""
        if type == DELETED:
            self._objects.pop(key_of(obj), None)
        else:
            self._objects[key_of(obj)] = obj

    def replace(self, objects: list[Object]) -> Iterator[tuple[str, Object]]:
        """Take the objects of a list, and yield the changes that lead to them."""
        before, self._objects = self._objects, {key_of(obj): obj for obj in objects}
        for key, obj in before.items():
            if key not in self._objects:
                yield DELETED, obj
        for key, obj in self._objects.items():
            if key not in before:
                yield ADDED, obj
            elif version_of(before[key]) != version_of(obj):
                yield MODIFIED, obj
