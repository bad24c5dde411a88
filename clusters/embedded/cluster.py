"""The embedded cluster: the semantics of the Kubernetes API on the store, in this process. A `Cluster` adapter."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from clusters.base.api import ObjectList, PatchType, Subresource, Trim, WatchEvent, trimmed
from clusters.base.clock import Clock
from clusters.base.errors import AlreadyExists, ClusterError, FieldError, Invalid, NamespaceTerminating, NotFound
from clusters.base.objects import NAMESPACE, Key, Kind, Object, is_deleting, key_of, namespace_of, timestamp
from clusters.base.selectors import parse_selector
from clusters.embedded.store import requests
from clusters.embedded.store.admission import Validator, manager_faults
from clusters.embedded.store.batch import Mutate, Remove
from clusters.embedded.store.scale import apply_scale, scale_of
from clusters.embedded.store.store import Store
from clusters.embedded.store.watch import Filter
from clusters.embedded.store.writes import Writer, check_deletable, check_preconditions, finalize, start_deletion
from clusters.embedded.workloads.event_ttl import EventTTLController
from clusters.embedded.workloads.garbage_collector import GarbageCollector
from clusters.embedded.workloads.namespace_controller import NamespaceController
from clusters.embedded.workloads.object_deleter import ObjectDeleter

NAME_ATTEMPTS = 8
"""Generated names to try before AlreadyExists is raised."""
LONGEST_VERSION = 19
"""Maximum digits of a resourceVersion: more than those of any version of the store."""
NAMESPACE_MANAGER = "knodel"
"""Field manager of the Namespaces that are created on first use."""


class EmbeddedCluster:
    """A `Cluster` on one machine. `validators` are the admission webhooks by kind. `run` collects garbage.

    Without `creates_namespaces`, an object in an absent namespace is rejected, as in Kubernetes.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        validators: Mapping[Kind, Validator] | None = None,
        creates_namespaces: bool = True,
    ) -> None:
        self._creates_namespaces = creates_namespaces
        self._store = store
        self._clock = clock
        self._validators = dict(validators or {})
        deleter = ObjectDeleter(self, clock)
        self._controllers = (
            GarbageCollector(store, deleter),
            NamespaceController(self, store, deleter),
            EventTTLController(store, deleter, clock),
        )

    async def run(self) -> None:
        """Delete dependents of deleted objects, contents of terminating namespaces and old Events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run(), name=type(controller).__name__)

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return an object. Raises NotFound."""
        key = requests.key_for(kind, name, namespace)
        return _existing(kind, key, self._store.get(kind, key))

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", *, trim: Trim | None = None
    ) -> ObjectList:
        """Return the objects of the kind that are in the namespace and match the labels, by key.

        Raises Invalid for an invalid selector.
        """
        objects = self._store.of_kind(kind)
        matching = self._filter(kind, namespace, selector)
        items = [objects[key] for key in sorted(objects) if matching.accepts(objects[key])]
        return ObjectList(items if trim is None else trimmed(items, trim), str(self._store.version))

    def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Yield changes after `resource_version`; for "" and "0" yield the present objects first.

        Raises Gone, Invalid.
        """
        if resource_version and not (resource_version.isdecimal() and len(resource_version) <= LONGEST_VERSION):
            shown = resource_version[:LONGEST_VERSION]
            raise Invalid(f"watch of {kind}", [FieldError("resourceVersion", f"{shown!r} is not a resourceVersion")])
        return self._store.watch(kind, int(resource_version or 0) or None, self._filter(kind, namespace, selector))

    async def create(self, kind: Kind, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Create an object. Raises AlreadyExists, Invalid, and NotFound for an absent or terminating namespace."""
        obj = requests.read_object(kind, obj)
        writer = self._writer(kind, manager, "")
        requests.require_no_version(kind, obj)
        await self._ensure_namespace(kind, obj, dry_run)
        attempts = 1 if obj["metadata"].get("name") else NAME_ATTEMPTS
        while True:
            attempts -= 1
            named = requests.generate_name(kind, obj)
            try:
                key = key_of(named)
                creation = self._creation(writer, key, named, *_new_uids(1))
                return await self._store.update(kind, key, creation, dry_run=dry_run)
            except AlreadyExists:
                if not attempts:
                    raise

    async def create_all(
        self, kind: Kind, objects: Sequence[Object], *, manager: str
    ) -> Sequence[Object | ClusterError]:
        """Create objects with one wait for the disk. Return for each the result or the error of `create`."""
        writer = self._writer(kind, manager, "")
        read = [requests.read_new(kind, obj) for obj in objects]
        fresh = [(key_of(obj), obj) for obj in read if not isinstance(obj, ClusterError)]
        for obj in {key.namespace: obj for key, obj in fresh}.values():
            await self._ensure_namespace(kind, obj, dry_run=False)
        uids = _new_uids(len(fresh))
        updates = [(key, self._creation(writer, key, obj, uid)) for (key, obj), uid in zip(fresh, uids, strict=True)]
        results: list[Object | ClusterError] = []
        made = iter(await self._store.update_all(kind, updates))
        for checked in read:
            if isinstance(checked, ClusterError):
                results.append(checked)
                continue
            result = next(made)
            if isinstance(result, Exception) and not isinstance(result, ClusterError):
                raise result
            results.append(result)
        return results

    async def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        manager: str,
        force: bool = False,
        subresource: Subresource = "",
        dry_run: bool = False,
    ) -> Object:
        """Apply an object on the server side.

        Raises Conflict (with `fields`), Invalid, and NotFound for a subresource of an absent object.
        """
        writer = self._writer(kind, manager, subresource)
        wanted = requests.read_applied(kind, obj, subresource)
        if not subresource:
            await self._ensure_namespace(kind, wanted, dry_run)
        key, [uid] = key_of(wanted), _new_uids(1)

        def mutate(before: Object | None) -> Object | Remove:
            if before is None:
                self._require_namespace(key)
            after = writer.apply(before, wanted, uid, force=force)
            return after if after is before else finalize(after)

        after = await self._store.update(kind, key, mutate, dry_run=dry_run)
        return scale_of(after) if subresource == "scale" else after

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        manager: str,
        type: PatchType = "merge",
        subresource: Subresource = "",
        dry_run: bool = False,
    ) -> Object:
        """Apply a JSON merge patch or a JSON patch. Raises NotFound, Conflict, Invalid."""
        writer = self._writer(kind, manager, subresource)
        key = requests.key_for(kind, name, namespace)
        change = requests.read_patch(kind, key, patch, type)

        def mutate(before: Object | None) -> Object | Remove:
            present = _existing(kind, key, before)
            wanted = (
                apply_scale(kind, present, change(scale_of(present))) if subresource == "scale" else change(present)
            )
            after = writer.update(present, wanted)
            return after if after is before else finalize(after)

        after = await self._store.update(kind, key, mutate, dry_run=dry_run)
        return scale_of(after) if subresource == "scale" else after

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period: int | None = None,
    ) -> None:
        """Delete an object, with background propagation. Raises NotFound, Conflict, Forbidden."""
        check_deletable(kind, name)
        key = requests.key_for(kind, name, namespace)
        preconditions = {"name": name, "uid": uid, "resourceVersion": resource_version}

        def mutate(before: Object | None) -> Object | Remove:
            present = _existing(kind, key, before)
            check_preconditions(kind, present, preconditions)
            return start_deletion(kind, present, self._clock.now(), grace_period)

        await self._store.update(kind, key, mutate)

    async def scale(
        self, kind: Kind, name: str, namespace: str, replicas: int, *, manager: str, uid: str = ""
    ) -> Object:
        """Set `.spec.replicas`, and return the Scale object. Raises NotFound, Conflict, Invalid."""
        patch: Object = {"metadata": {"uid": uid}} if uid else {}
        patch["spec"] = {"replicas": replicas}
        return await self.patch(kind, name, patch, namespace, manager=manager, subresource="scale")

    def _writer(self, kind: Kind, manager: str, subresource: Subresource) -> Writer:
        """Return the writer for a request. Raises NotFound for an absent subresource, Invalid for the manager."""
        if (subresource == "status" and not kind.status) or (subresource == "scale" and not kind.scale):
            raise NotFound(f"{kind} has no subresource {subresource!r}")
        if faults := list(manager_faults(manager)):
            raise Invalid(str(kind), faults)
        validator = self._validators.get(kind)
        now = timestamp(self._clock.now())
        return Writer(kind, manager, now, subresource, (validator,) if validator else ())

    def _creation(self, writer: Writer, key: Key, obj: Object, uid: str) -> Mutate:
        def mutate(before: Object | None) -> Object:
            if before is not None:
                raise AlreadyExists(f"{writer.kind} {str(key)!r} already exists")
            self._require_namespace(key)
            return writer.create(obj, uid)

        return mutate

    async def _ensure_namespace(self, kind: Kind, obj: Object, dry_run: bool) -> None:
        """Create the object's namespace on first use, if the cluster creates namespaces."""
        name = namespace_of(obj)
        wanted = self._creates_namespaces and kind.namespaced and not dry_run
        if wanted and self._store.get(NAMESPACE, Key("", name)) is None:
            with contextlib.suppress(AlreadyExists):  # another request was first
                await self.create(NAMESPACE, {"metadata": {"name": name}}, manager=NAMESPACE_MANAGER)

    def _require_namespace(self, key: Key) -> None:
        """Raise NotFound for a new object whose namespace is absent or terminating."""
        if not key.namespace:
            return
        namespace = self._store.get(NAMESPACE, Key("", key.namespace))
        if namespace is None and not self._creates_namespaces:
            raise NotFound(f"namespaces {key.namespace!r} not found: create it with `knodel namespace {key.namespace}`")
        if namespace is not None and is_deleting(namespace):
            raise NamespaceTerminating(f"namespace {key.namespace!r} is being deleted: wait until it is deleted")

    @staticmethod
    def _filter(kind: Kind, namespace: str | None, selector: str) -> Filter:
        return Filter(namespace if kind.namespaced else None, parse_selector(selector))


def _existing(kind: Kind, key: Key, obj: Object | None) -> Object:
    if obj is None:
        raise NotFound(f"{kind} {str(key)!r} not found")
    return obj


def _new_uids(count: int) -> list[str]:
    """Return random UUIDs (RFC 9562 version 4), in a third of the time of `uuid.uuid4`."""
    digits = os.urandom(16 * count).hex()
    each = (digits[start : start + 32] for start in range(0, len(digits), 32))
    return [f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{_VARIANT[one[16]]}{one[17:20]}-{one[20:]}" for one in each]


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
