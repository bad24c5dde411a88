"""The effect of each verb of the API on an object: functions from the present object and a request to the new object.

They run inside the store's transaction. Returning the given object itself means that there is nothing to write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from clusters.base import fieldsets
from clusters.base.api import Subresource
from clusters.base.errors import Conflict, FieldError, Forbidden, Invalid, NotFound
from clusters.base.fieldsets import same
from clusters.base.managed_fields import FieldManager, Operation, read_managers, write_created, write_managers
from clusters.base.objects import (
    NAMESPACE,
    POD,
    SECRET,
    Kind,
    Object,
    generation_of,
    is_deleting,
    timestamp,
    uid_of,
    version_of,
)
from clusters.embedded.store.admission import Validator, metadata_faults, shape_faults, unknown_faults, unknown_fields
from clusters.embedded.store.batch import Remove
from clusters.embedded.store.secrets import merge_string_data

CONTENTS_FINALIZER = "embedded.knodel.dev/contents"
"""A finalizer of every Namespace, so that it is removed only after its contents."""

PROTECTED_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public"})

DEFAULT_POD_GRACE = 30
"""s; Kubernetes' default of a Pod's `spec.terminationGracePeriodSeconds`."""

_IDENTITY = frozenset({"apiVersion", "kind", "metadata"})
_IDENTITY_AND_STATUS = _IDENTITY | {"status"}
_SYSTEM_METADATA = frozenset({
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "selfLink",
})  # fmt: skip
"""Metadata that only the API server sets."""
_OWNED_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
"""Metadata that field managers own."""
_OWNED_BESIDE_LABELS = _OWNED_METADATA[1:]
REMEMBERED = 64
"""Cached lists of managers, which similar objects that were created in the same second share."""
_SPEC_ALONE = _IDENTITY | {"spec"}
_REPLICAS = ("f:spec", "f:replicas")
"""As in kube-apiserver, a scale records its manager only if the replicas already had one (`skipnonapplied.go`)."""


@dataclass(frozen=True, slots=True)
class Writer:
    """One request: the kind, the field manager, the time (RFC 3339), the subresource, and the validators."""

    kind: Kind
    manager: str
    now: str
    subresource: Subresource = ""
    validators: Sequence[Validator] = ()

    def create(self, obj: Object, uid: str, operation: Operation = "Update") -> Object:
        """Return a new object from `obj`, which has its final name. Raises Invalid."""
        self._refuse(unknown_faults(None, obj), obj)
        fresh = self._without_system_fields(self._merged(obj))
        metadata = fresh["metadata"]
        metadata["uid"] = uid
        metadata["creationTimestamp"] = self.now
        metadata["generation"] = 1
        self._admit(None, fresh)
        metadata["managedFields"] = self._initial_managers(fresh, operation)
        if self.kind.resource == NAMESPACE.resource:  # no manager owns this finalizer, so no apply removes it
            metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CONTENTS_FINALIZER]
            fresh["status"] = {"phase": "Active"}
        return fresh

    def apply(self, before: Object | None, obj: Object, uid: str, *, force: bool) -> Object:
        """Return `before` with `obj` applied by this manager. Raises Conflict, Invalid, NotFound."""
        name = obj["metadata"].get("name", "")
        if before is None and self.subresource:
            raise NotFound(f"{self.kind} {name!r} not found")
        if before is None:  # kube-apiserver ignores a resourceVersion here
            check_preconditions(self.kind, None, {**obj["metadata"], "resourceVersion": ""})
            return self.create({**obj, **fieldsets.without_nulls(_content(obj))}, uid, "Apply")
        self._refuse(unknown_faults(before, obj), obj)
        obj = self._merged(obj)
        check_preconditions(self.kind, before, obj["metadata"])
        before = _without(before, {field for field, value in obj["metadata"].items() if value is None})
        managers, live, wanted = read_managers(before), self._ownable(before), self._ownable(obj)
        what = f"{self.kind} {name!r}"
        applied = fieldsets.apply(managers, live, wanted, self._field_manager("Apply"), force=force, what=what)
        return self._finish(before, applied.object, managers, applied.managers)

    def update(self, before: Object, wanted: Object) -> Object:
        """Return `before` with those changes of `wanted` that this request may make. Raises Conflict, Invalid."""
        self._refuse(shape_faults(self.kind, wanted) or unknown_faults(before, wanted), before)
        check_preconditions(self.kind, before, wanted["metadata"])
        self._refuse(_identity_faults(before, wanted), before)
        before = _without(before, unknown_fields(before) - unknown_fields(wanted))
        wanted = (
            _with_contents_finalizer(before, wanted)
            if self.kind.resource == NAMESPACE.resource
            else self._merged(wanted)
        )
        owned, live = self._ownable(wanted), self._ownable(before)
        if same(owned, live):
            return before
        managers = read_managers(before)
        if self.subresource == "scale" and not any(_REPLICAS in manager.fields for manager in managers):
            return self._finish(before, owned, managers, managers)
        return self._finish(
            before, owned, managers, fieldsets.updated(managers, live, owned, self._field_manager("Update"))
        )

    def _merged(self, obj: Object) -> Object:
        return merge_string_data(obj) if self.kind.resource == SECRET.resource else obj

    def _finish(
        self, before: Object, owned: Object, former: Sequence[FieldManager], managers: Sequence[FieldManager]
    ) -> Object:
        """Return `before` with its ownable part replaced by `owned`: validated, with generation and managers."""
        unchanged = same(owned, self._ownable(before))
        if unchanged and set(managers) == set(former):
            return before
        after = self._with_owned(before, owned)
        if not unchanged and self.subresource != "status":
            self._admit(before, after)
        if not same(_desired(before), _desired(after)):
            after["metadata"]["generation"] = generation_of(before) + 1
        after["metadata"]["managedFields"] = write_managers(managers)
        return after

    def _admit(self, before: Object | None, after: Object) -> None:
        faults = shape_faults(self.kind, after) if before is not None else []  # a new one was checked when it was read
        faults = faults or metadata_faults(self.kind, after) + _finalizer_faults(before, after)
        # The finalizers of an object that is being deleted can be removed even if newer rules reject it.
        leaving = before is not None and is_deleting(before) and same(_desired(before), _desired(after))
        for validate in self.validators if not faults and not leaving else ():
            faults.extend(validate(before, after))
        self._refuse(faults, after)

    def _refuse(self, faults: Sequence[FieldError], obj: Object) -> None:
        if faults:
            raise Invalid(f"{self.kind} {obj['metadata'].get('name', '')!r}", faults)

    def _initial_managers(self, fresh: Object, operation: Operation) -> list[Object]:
        """Return `managedFields` of a new object. Those of an atomic kind with the same label keys share one list."""
        if not self.kind.atomic:
            return write_created(self._field_manager(operation), self._ownable(fresh))
        metadata = fresh["metadata"]
        if _SPEC_ALONE.issuperset(fresh) and not any(map(metadata.get, _OWNED_BESIDE_LABELS)):
            labels = tuple(metadata.get("labels") or ())
            return _shared_managers(
                self.manager, operation, self.subresource, self.kind.api_version, self.now, "spec" in fresh, labels
            )
        return write_created(
            self._field_manager(operation), self._ownable(fresh) | ({"spec": ()} if fresh.get("spec") else {})
        )

    def _without_system_fields(self, obj: Object) -> Object:
        """Return a copy without system metadata, and without the status if that is a subresource."""
        given = obj["metadata"]
        if _SYSTEM_METADATA.isdisjoint(given) and None not in given.values():
            metadata = dict(given)
        else:
            metadata = {key: value for key, value in given.items() if key not in _SYSTEM_METADATA and value is not None}
        if not self.kind.namespaced:
            metadata.pop("namespace", None)
        bare = {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata}
        return bare | self._settable(obj)

    def _ownable(self, obj: Object) -> Object:
        """Return the part of `obj` that this request may change and that managers own."""
        if self.subresource == "status":
            return {"status": obj["status"]} if obj.get("status") is not None else {}
        if self.subresource == "scale":
            spec = obj.get("spec") or {}
            return {"spec": {"replicas": spec["replicas"]}} if "replicas" in spec else {}
        metadata = {key: obj["metadata"][key] for key in _OWNED_METADATA if obj["metadata"].get(key)}
        content = self._settable(obj)
        if metadata:
            content["metadata"] = metadata
        return content

    def _settable(self, obj: Object) -> Object:
        """Return all fields but the identity, and but the status if that is a subresource."""
        kept = _IDENTITY_AND_STATUS if self.kind.status else _IDENTITY
        return {key: value for key, value in obj.items() if key not in kept}

    def _with_owned(self, before: Object, owned: Object) -> Object:
        """Return `before` with its ownable part replaced. Its metadata are a copy that may be modified."""
        head = {"apiVersion": before["apiVersion"], "kind": before["kind"], "metadata": dict(before["metadata"])}
        if self.subresource == "status":
            return head | {key: value for key, value in _content(before).items() if key != "status"} | owned
        if self.subresource == "scale":
            return head | _content(before) | {"spec": {**(before.get("spec") or {}), **owned.get("spec", {})}}
        kept = {key: value for key, value in before["metadata"].items() if key not in _OWNED_METADATA}
        head["metadata"] = kept | owned.get("metadata", {})
        content = {key: value for key, value in owned.items() if key != "metadata"}
        status = {"status": before["status"]} if self.kind.status and "status" in before else {}
        return head | content | status

    def _field_manager(self, operation: Operation) -> FieldManager:
        return FieldManager(self.manager, operation, self.subresource, self.kind.api_version, self.now, frozenset())


@lru_cache(REMEMBERED)
def _shared_managers(
    manager: str,
    operation: Operation,
    subresource: Subresource,
    api_version: str,
    now: str,
    has_spec: bool,
    labels: tuple[str, ...],
) -> list[Object]:
    """Return `managedFields` of a new object with these labels and, if `has_spec`, a spec that counts as one field."""
    me = FieldManager(manager, operation, subresource, api_version, now, frozenset())
    owned: Object = {"spec": ()} if has_spec else {}
    return write_created(me, owned | ({"metadata": {"labels": dict.fromkeys(labels, "")}} if labels else {}))


def check_preconditions(kind: Kind, before: Object | None, metadata: Mapping[str, Any]) -> None:
    """Raise Conflict when `metadata` has another uid or resourceVersion than the object."""
    for name, present in (("uid", uid_of), ("resourceVersion", version_of)):
        wanted = metadata.get(name)
        if wanted and (before is None or wanted != present(before)):
            found = f"the object has {present(before)!r}" if before is not None else "there is no such object"
            what = f"{kind} {metadata.get('name', '')!r}"
            raise Conflict(f"{what}: the request has {name} {wanted!r} but {found}: read it again")


def _without(before: Object, fields: Collection[str]) -> Object:
    """Return `before` without those of `fields` in its metadata that ObjectMeta does not have; itself if there are
    none.
    """
    gone = unknown_fields(before).intersection(fields)
    if not gone:
        return before
    return {**before, "metadata": {field: value for field, value in before["metadata"].items() if field not in gone}}


def _with_contents_finalizer(before: Object, wanted: Object) -> Object:
    """Return `wanted` with the contents finalizer of a Namespace that is not being deleted.

    In Kubernetes it is in `spec.finalizers`, which an update does not change: a replaced manifest must not remove it.
    """
    had, has = ((obj["metadata"].get("finalizers") or ()) for obj in (before, wanted))
    if is_deleting(before) or CONTENTS_FINALIZER not in had or CONTENTS_FINALIZER in has:
        return wanted
    return {**wanted, "metadata": {**wanted["metadata"], "finalizers": [*has, CONTENTS_FINALIZER]}}


def _content(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in _IDENTITY}


def _desired(obj: Object) -> Object:
    """Return the fields whose change increments the generation: all but metadata and status."""
    return {key: value for key, value in obj.items() if key not in _IDENTITY and key != "status"}


def _identity_faults(before: Object, wanted: Object) -> list[FieldError]:
    return [
        FieldError(f"metadata.{name}", f"it cannot change from {before['metadata'].get(name, '')!r}")
        for name in ("name", "namespace")
        if (wanted["metadata"].get(name) or "") != (before["metadata"].get(name) or "")
    ]


def _finalizer_faults(before: Object | None, after: Object) -> list[FieldError]:
    if before is None or not is_deleting(before):
        return []
    added = set(after["metadata"].get("finalizers") or ()) - set(before["metadata"].get("finalizers") or ())
    if not added:
        return []
    message = f"{', '.join(sorted(added))} cannot be added: the object is being deleted"
    return [FieldError("metadata.finalizers", message)]


def check_deletable(kind: Kind, name: str) -> None:
    """Raise Forbidden for the Namespaces that Kubernetes' admission plugin NamespaceLifecycle protects."""
    if kind == NAMESPACE and name in PROTECTED_NAMESPACES:
        raise Forbidden(f'namespaces "{name}" is forbidden: this namespace may not be deleted')


def start_deletion(kind: Kind, before: Object, now: datetime, grace: int | None) -> Object | Remove:
    """Return `before` with a `deletionTimestamp`, or remove it when it has no finalizers and no grace period.

    Only Pods have a grace period: `grace` seconds, or that of their spec. As in Kubernetes, their deletionTimestamp is
    its end, and another deletion can only shorten it. The first deletion increments the generation.
    """
    metadata = before["metadata"]
    seconds = 0
    if kind == POD:
        stated = (before.get("spec") or {}).get("terminationGracePeriodSeconds")
        seconds = max(grace, 0) if grace is not None else int(stated if stated is not None else DEFAULT_POD_GRACE)
    if is_deleting(before) and seconds >= int(metadata.get("deletionGracePeriodSeconds", 0)):
        return finalize(before)
    end = timestamp(now + timedelta(seconds=seconds))
    marked = {**metadata, "deletionTimestamp": end, "deletionGracePeriodSeconds": seconds}
    if not is_deleting(before):
        marked["generation"] = generation_of(before) + 1
    after = {**before, "metadata": marked}
    if kind == NAMESPACE:
        after["status"] = {**(before.get("status") or {}), "phase": "Terminating"}
    return finalize(after)


def finalize(obj: Object) -> Object | Remove:
    """Remove an object that is being deleted and has neither finalizers nor a grace period."""
    metadata = obj["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return Remove(obj) if is_deleting(obj) and not held else obj
