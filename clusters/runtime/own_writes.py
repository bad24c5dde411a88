"""Read your own writes: the objects that this process wrote and an informer does not show yet.

An informer follows the cluster with a delay. A pass soon after a write reads the state before it, and would create a
child twice or claim a Pod twice. Therefore the cluster's answers to writes are kept until the informer has reached
their resourceVersion, as in client-go's `MutationCache` (`k8s.io/client-go/tools/cache/mutation_cache.go`). The records
of creations and deletions serve the purpose of the expectations of Kubernetes' controllers
(`pkg/controller/controller_utils.go`). They are made after the call, so that a failed call leaves none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from clusters.base.clock import Clock
from clusters.base.objects import Key, Object, controller_of, is_deleting, key_of, uid_of, version_number, version_of

FORGET_AFTER: Final = 30.0
"""Seconds after which a write is forgotten that the informer does not show, normally after milliseconds: the object may
not match the informer's selector. Kubernetes waits 5 minutes, too long for a model that lacks a replica."""


class Shown(Protocol):
    """The state that `OwnWrites` overlays: an informer."""

    @property
    def resource_version(self) -> str:
        """Return the cluster's version up to which all changes were observed."""
        ...

    def get(self, name: str, namespace: str = "") -> Object | None:
        """Return the last observed state of an object, or None."""
        ...


@dataclass(frozen=True, slots=True)
class _Write:
    object: Object
    version: int
    forget_at: float


@dataclass(frozen=True, slots=True)
class _Deletion:
    """A deletion of an object at `version`. The informer may show the object until then, also for the first time."""

    key: Key
    version: int
    forget_at: float


class OwnWrites:
    """The state of an informer, overlaid with the writes of this process that it does not show yet.

    A write is unseen while the informer shows an older version of the object, or none although its resourceVersion is
    lower than the write's. After `FORGET_AFTER` it is forgotten in any case. A deletion has no resourceVersion: it is
    unseen while the informer shows the object without a deletionTimestamp.

    Example:
        own = informer.own_writes
        own.record(await cluster.create(POD, pod, manager="me"))
        assert own.get("iris-0", "default") is not None  # although informer.get() may return None
    """

    def __init__(self, shown: Shown, clock: Clock) -> None:
        self._shown = shown
        self._clock = clock
        self._written: dict[Key, _Write] = {}  # oldest first
        self._deleted: dict[str, _Deletion] = {}  # by uid, oldest first

    def record(self, written: Object) -> None:
        """Record an object as the cluster returned it. The answer may arrive after later events of the object."""
        while self._written:
            key, oldest = next(iter(self._written.items()))
            if self._is_unseen(oldest, self._shown.get(key.name, key.namespace)):
                break
            del self._written[key]
        write = _Write(written, version_number(version_of(written)), self._clock.monotonic() + FORGET_AFTER)
        key = key_of(written)
        if key not in self._written or self._written[key].version < write.version:
            self._written.pop(key, None)
            self._written[key] = write

    def discard(self, key: Key) -> None:
        """Delete the record of an object that no longer exists."""
        self._written.pop(key, None)

    def get(self, name: str, namespace: str = "") -> Object | None:
        """Return the newest known state of an object, or None."""
        shown, write = self._shown.get(name, namespace), self._written.get(Key(namespace, name))
        return write.object if write is not None and self._is_unseen(write, shown) else shown

    def latest(self, known: Object) -> Object:
        """Return `known`, or the object as this process wrote it later."""
        write = self._written.get(key_of(known)) if self._written else None
        return write.object if write is not None and self._is_unseen(write, known) else known

    def is_outdated(self, key: Key, version: str) -> bool:
        """Return whether this process has changed the object since `version` of it."""
        write = self._written.get(key)
        return write is not None and version_number(version) < write.version and self._is_remembered(write)

    def unseen(self) -> list[Object]:
        """Return the written objects that the informer does not show in that state."""
        return [
            write.object
            for key, write in self._written.items()
            if self._is_unseen(write, self._shown.get(key.name, key.namespace))
        ]

    def created(self, owner: str) -> list[Object]:
        """Return the objects of the controller with uid `owner` that were created and that the informer lacks."""
        return [
            obj
            for obj in self.unseen()
            if (controller_of(obj) or {}).get("uid") == owner and not self._shows(key_of(obj), uid_of(obj))
        ]

    def record_deletion(self, deleted: Object) -> None:
        """Record that the cluster accepted the deletion of this object."""
        now = self._clock.monotonic()
        while self._deleted:
            uid, oldest = next(iter(self._deleted.items()))
            may_be_shown = self._shows(oldest.key, uid) or version_number(self._shown.resource_version) < oldest.version
            if now < oldest.forget_at and may_be_shown:
                break
            del self._deleted[uid]
        version = version_number(version_of(deleted))
        self._deleted[uid_of(deleted)] = _Deletion(key_of(deleted), version, now + FORGET_AFTER)

    def is_deleting(self, obj: Object) -> bool:
        """Return whether the object is being deleted, shown as such or not."""
        if is_deleting(obj) or uid_of(obj) not in self._deleted:
            return is_deleting(obj)
        return self._clock.monotonic() < self._deleted[uid_of(obj)].forget_at

    def _is_unseen(self, write: _Write, shown: Object | None) -> bool:
        version = self._shown.resource_version if shown is None else version_of(shown)
        return version_number(version) < write.version and self._is_remembered(write)

    def _is_remembered(self, write: _Write) -> bool:
        return self._clock.monotonic() < write.forget_at

    def _shows(self, key: Key, uid: str) -> bool:
        shown = self._shown.get(key.name, key.namespace)
        return shown is not None and uid_of(shown) == uid


__all__ = ["FORGET_AFTER", "OwnWrites", "Shown"]
