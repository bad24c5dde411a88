"""The embedded cluster: Kubernetes' API semantics on the store, in this process. One of the two `Cluster` adapters."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from clusters.api import ObjectList, PatchType, Subresource, WatchEvent
from clusters.clock import Clock
from clusters.embedded import writes
from clusters.embedded.admission import Validator, manager_faults, metadata_faults, shape_faults
from clusters.embedded.garbage import Collector
from clusters.embedded.store import Mutate, Remove, Store
from clusters.embedded.watch import Filter
from clusters.embedded.writes import Writer
from clusters.errors import AlreadyExists, FieldError, Invalid, NotFound
from clusters.objects import NAMESPACE, Key, Kind, Object, is_deleting, key_of, name_of, namespace_of, timestamp
from clusters.patches import json_patch, merge_patch
from clusters.selectors import parse_selector, selector_for

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What generated names end in: no vowels, so no words (Kubernetes' `rand.SafeEncodeString`)."""
SUFFIX_LENGTH = 5
LONGEST_GENERATED_BASE = 58
"""Characters of `generateName` that are kept, so that name and suffix fit a DNS label."""
NAME_ATTEMPTS = 8
"""Generated names to try before AlreadyExists is told."""
LARGEST_REPLICAS = 2**31 - 1
"""int32, the type of `spec.replicas`."""
SCALE_API_VERSION = "autoscaling/v1"


class EmbeddedCluster:
    """`Cluster` on one machine. `validators` are the admission webhooks, by kind; `run` collects garbage."""

    def __init__(self, store: Store, *, clock: Clock, validators: Mapping[Kind, Validator] | None = None) -> None:
        self._store = store
        self._clock = clock
        self._validators = dict(validators or {})
        self._collector = Collector(self, store, clock)

    async def run(self) -> None:
        """Collect garbage until cancelled: dependents of what is gone, contents of namespaces, old Events."""
        await self._collector.run()

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """One object. Raises NotFound."""
        return self._existing(kind, self._store.get(kind, _key(kind, name, namespace)), name, namespace)

    async def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> ObjectList:
        """All objects of the kind (in one namespace, matching labels), by key. Raises Invalid for a bad selector."""
        objects = self._store.of_kind(kind)
        sees = self._filter(kind, namespace, selector)
        items = [objects[key] for key in sorted(objects) if sees.accepts(objects[key])]
        return ObjectList(items, str(self._store.version))

    def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Changes after `resource_version`; "" or "0" first tells the present objects as ADDED. Raises Gone, Invalid."""
        if resource_version and not resource_version.isdecimal():
            raise Invalid(f"watch of {kind}", [FieldError("resourceVersion", f"{resource_version!r} is no version")])
        return self._store.watch(kind, int(resource_version or 0) or None, self._filter(kind, namespace, selector))

    async def create(self, kind: Kind, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Store a new object. Raises AlreadyExists, Invalid, NotFound for a terminating namespace."""
        writer = self._writer(kind, manager, "", obj)
        if obj["metadata"].get("resourceVersion"):
            raise _invalid(kind, obj, "metadata.resourceVersion", "it must not be set on an object to be created")
        await self._ensure_namespace(kind, obj, dry_run)
        attempts = 1 if obj["metadata"].get("name") else NAME_ATTEMPTS
        while True:
            attempts -= 1
            named = _named(kind, obj)
            try:
                return await self._store.update(kind, _key_of(kind, named), _creation(writer, named), dry_run=dry_run)
            except AlreadyExists:
                if not attempts:
                    raise

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
        """Server-side apply. Raises Conflict (with `fields`), Invalid, NotFound for an absent object's subresource."""
        writer = self._writer(kind, manager, subresource, obj)
        if not obj["metadata"].get("name"):
            raise _invalid(kind, obj, "metadata.name", "it is required")
        if not subresource:
            await self._ensure_namespace(kind, obj, dry_run)

        def mutate(before: Object | None) -> Object | Remove:
            self._refuse_terminating(kind, obj, before)
            after = writer.apply(before, obj, str(uuid.uuid4()), force=force)
            return after if after is before else writes.vanish(after)

        after = await self._store.update(kind, _key_of(kind, obj), mutate, dry_run=dry_run)
        return _scale_of(after) if subresource == "scale" else after

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
        """JSON merge patch or JSON patch. Raises NotFound, Conflict, Invalid."""
        writer = self._writer(kind, manager, subresource)
        key = _key(kind, name, namespace)

        def mutate(before: Object | None) -> Object | Remove:
            present = self._existing(kind, before, name, namespace)
            shown = _scale_of(present) if subresource == "scale" else present
            wanted = _patched(kind, shown, patch, type)
            if subresource == "scale":
                return writer.update(present, _with_replicas(kind, present, (wanted.get("spec") or {}).get("replicas")))
            return writer.update(present, wanted)

        after = await self._store.update(kind, key, mutate, dry_run=dry_run)
        return _scale_of(after) if subresource == "scale" else after

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
        """Ask for deletion, background propagation. Raises NotFound, Conflict."""
        now = self._clock.now()

        def mutate(before: Object | None) -> Object | Remove:
            present = self._existing(kind, before, name, namespace)
            wanted = {"name": name, "uid": uid, "resourceVersion": resource_version}
            writes.check_preconditions(kind, present, wanted)
            deadline = now + timedelta(seconds=writes.grace_of(kind, present, grace_period))
            return writes.delete(kind, present, timestamp(now), timestamp(deadline), grace_period)

        await self._store.update(kind, _key(kind, name, namespace), mutate)

    async def scale(self, kind: Kind, name: str, namespace: str, replicas: int, *, manager: str) -> Object:
        """Set `.spec.replicas`; returns the Scale object. Raises NotFound, Invalid."""
        patch = {"spec": {"replicas": replicas}}
        return await self.patch(kind, name, patch, namespace, manager=manager, subresource="scale")

    def _writer(self, kind: Kind, manager: str, subresource: Subresource, obj: Object | None = None) -> Writer:
        """The writer for a request whose form is checked here. Raises Invalid, NotFound for an absent subresource."""
        if (subresource == "status" and not kind.status) or (subresource == "scale" and not kind.scale):
            raise NotFound(f"{kind} has no subresource {subresource!r}")
        faults = list(manager_faults(manager))
        if obj is not None:
            faults += shape_faults(kind, obj)
        if faults:
            raise Invalid(f"{kind}", faults)
        validator = self._validators.get(kind)
        now = timestamp(self._clock.now())
        return Writer(kind, manager, now, subresource, (validator,) if validator else ())

    async def _ensure_namespace(self, kind: Kind, obj: Object, dry_run: bool) -> None:
        """Namespaces are made on first use. Raises NotFound for one that is being deleted."""
        if not kind.namespaced or dry_run:
            return
        faults = [fault for fault in metadata_faults(kind, obj) if fault.path == "metadata.namespace"]
        if faults:
            raise Invalid(f"{kind} {obj['metadata'].get('name', '')!r}", faults)
        key = Key("", namespace_of(obj))
        present = self._store.get(NAMESPACE, key)
        if present is None:
            namespace = {"metadata": {"name": key.name}}
            try:
                await self.create(NAMESPACE, namespace, manager="knodel")
            except AlreadyExists:
                return
        self._refuse_terminating(kind, obj, None)

    def _refuse_terminating(self, kind: Kind, obj: Object, before: Object | None) -> None:
        if before is not None or not kind.namespaced:
            return
        namespace = self._store.get(NAMESPACE, Key("", namespace_of(obj)))
        if namespace is not None and is_deleting(namespace):
            raise NotFound(f"namespace {namespace_of(obj)!r} is being deleted: wait until it is gone")

    @staticmethod
    def _existing(kind: Kind, obj: Object | None, name: str, namespace: str) -> Object:
        if obj is None:
            raise NotFound(f"{kind} {str(_key(kind, name, namespace))!r} not found")
        return obj

    @staticmethod
    def _filter(kind: Kind, namespace: str | None, selector: str) -> Filter:
        return Filter(namespace if kind.namespaced else None, parse_selector(selector))


def _key(kind: Kind, name: str, namespace: str) -> Key:
    if not kind.namespaced:
        return Key("", name)
    if not namespace:
        raise Invalid(f"{kind} {name!r}", [FieldError("metadata.namespace", "it is required")])
    return Key(namespace, name)


def _key_of(kind: Kind, obj: Object) -> Key:
    return _key(kind, name_of(obj), namespace_of(obj))


def _creation(writer: Writer, obj: Object) -> Mutate:
    def mutate(before: Object | None) -> Object:
        if before is not None:
            raise AlreadyExists(f"{writer.kind} {str(key_of(before))!r} already exists")
        return writer.create(obj, str(uuid.uuid4()))

    return mutate


def _named(kind: Kind, obj: Object) -> Object:
    """`obj` with a name: its own, or `generateName` and a suffix."""
    metadata = obj["metadata"]
    if metadata.get("name"):
        return obj
    if not metadata.get("generateName"):
        raise _invalid(kind, obj, "metadata.name", "it is required (or metadata.generateName)")
    suffix = "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(SUFFIX_LENGTH))
    name = metadata["generateName"][:LONGEST_GENERATED_BASE] + suffix
    return {**obj, "metadata": {**metadata, "name": name}}


def _patched(
    kind: Kind, present: Object, patch: Mapping[str, Any] | Sequence[Mapping[str, Any]], type: PatchType
) -> Object:
    what = f"{kind} {str(key_of(present))!r}"
    if type == "merge" and isinstance(patch, Mapping):
        return dict(merge_patch(present, patch))
    if type == "json" and isinstance(patch, Sequence):
        return json_patch(present, patch, what)
    shape = "a map" if type == "merge" else "a list of operations"
    raise Invalid(what, [FieldError("", f"a {type} patch must be {shape}")])


def _scale_of(obj: Object) -> Object:
    """The Scale object of a scalable one."""
    metadata = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status = obj.get("status") or {}
    return {
        "apiVersion": SCALE_API_VERSION,
        "kind": "Scale",
        "metadata": {key: metadata[key] for key in shown if key in metadata},
        "spec": {"replicas": (obj.get("spec") or {}).get("replicas", 0)},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": selector_for(((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}),
        },
    }


def _with_replicas(kind: Kind, obj: Object, replicas: object) -> Object:
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas <= LARGEST_REPLICAS:
        raise _invalid(kind, obj, "spec.replicas", f"{replicas!r} is not allowed: use a whole number of at least 0")
    return {**obj, "spec": {**(obj.get("spec") or {}), "replicas": replicas}}


def _invalid(kind: Kind, obj: Object, path: str, message: str) -> Invalid:
    return Invalid(f"{kind} {obj['metadata'].get('name', '')!r}", [FieldError(path, message)])
