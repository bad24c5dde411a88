"""What each verb of the API makes of an object: pure functions from the present object and a request to the next one.

They run inside the store's transaction. Returning the very object that was given means "nothing to write".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusters import fieldsets
from clusters.api import Subresource
from clusters.embedded.admission import Validator, metadata_faults, shape_faults
from clusters.embedded.store import Remove
from clusters.errors import Conflict, FieldError, Invalid, NotFound
from clusters.fieldsets import Manager, Operation
from clusters.objects import NAMESPACE, POD, Kind, Object, generation_of, is_deleting, uid_of, version_of

DEFAULT_POD_GRACE = 30
"""s, `spec.terminationGracePeriodSeconds` where a Pod does not say (Kubernetes' default)."""

CONTENTS_FINALIZER = "embedded.knodel.dev/contents"
"""On every Namespace, so that it goes only after what is in it."""

_SYSTEM_FIELDS = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "selfLink",
)  # fmt: skip
"""Metadata that only the API server writes."""
_OWNED_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
"""Metadata that field managers own."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes an object of which kind, when (RFC 3339), through which subresource, and what checks it."""

    kind: Kind
    manager: str
    now: str
    subresource: Subresource = ""
    validators: Sequence[Validator] = field(default_factory=tuple)

    def create(self, obj: Object, uid: str, operation: Operation = "Update") -> Object:
        """A new object from `obj`, whose name is settled. Raises Invalid."""
        fresh = self._bare(obj)
        system = {"uid": uid, "creationTimestamp": self.now, "generation": 1}
        fresh["metadata"] = fresh["metadata"] | system
        self._admit(None, fresh)
        created = self._managed(fresh, fieldsets.updated((), {}, self._ownable(fresh), self._me(operation)))
        if self.kind == NAMESPACE:  # nobody owns this finalizer, so no apply takes it away
            finalizers = created["metadata"].get("finalizers") or []
            created["metadata"]["finalizers"] = [*finalizers, CONTENTS_FINALIZER]
        return created

    def apply(self, before: Object | None, obj: Object, uid: str, *, force: bool) -> Object:
        """`before` with `obj` applied by this manager. Raises Conflict, Invalid, NotFound."""
        check_preconditions(self.kind, before, obj["metadata"])
        if before is None:
            if self.subresource:
                raise NotFound(f"{self.kind} {obj['metadata'].get('name')!r} not found")
            return self.create({**obj, **fieldsets.without_nulls(_content(obj))}, uid, "Apply")
        what = f"{self.kind} {obj['metadata'].get('name')!r}"
        outcome = fieldsets.apply(
            fieldsets.read_managers(before), self._ownable(before), self._ownable(obj), self._me("Apply"),
            force=force, what=what,
        )  # fmt: skip
        merged = self._with_owned(before, outcome.object)
        return self._finish(before, merged, outcome.managers)

    def update(self, before: Object, wanted: Object) -> Object | Remove:
        """`before` with those differences of `wanted`, a changed copy, that this writer may make. Raises Conflict, Invalid."""
        self._refuse(list(shape_faults(self.kind, wanted)), before)
        check_preconditions(self.kind, before, wanted["metadata"])
        self._refuse(list(_identity_faults(before, wanted)), before)
        owned, live = self._ownable(wanted), self._ownable(before)
        if owned == live:
            return before
        managers = fieldsets.updated(fieldsets.read_managers(before), live, owned, self._me("Update"))
        return vanish(self._finish(before, self._with_owned(before, owned), managers))

    def _finish(self, before: Object, after: Object, managers: Sequence[Manager]) -> Object:
        """Validate `after`, raise the generation, write managedFields; `before` itself when nothing differs."""
        same = self._ownable(before) == self._ownable(after)
        if same and tuple(managers) == fieldsets.read_managers(before):
            return before
        if not same and self.subresource != "status":
            self._admit(before, after)
        if _desired(self.kind, before) != _desired(self.kind, after):
            after["metadata"] = after["metadata"] | {"generation": generation_of(before) + 1}
        return self._managed(after, managers)

    def _admit(self, before: Object | None, after: Object) -> None:
        faults = [*shape_faults(self.kind, after)]
        faults = faults or [*metadata_faults(self.kind, after), *_finalizer_faults(before, after)]
        # An object on its way out must be able to lose its finalizers even if newer rules refuse it.
        if before is None or not (is_deleting(before) and _desired(self.kind, before) == _desired(self.kind, after)):
            for validate in self.validators if not faults else ():
                faults.extend(validate(before, after))
        self._refuse(faults, after)

    def _refuse(self, faults: Sequence[FieldError], obj: Object) -> None:
        if faults:
            raise Invalid(f"{self.kind} {obj['metadata'].get('name', '')!r}", faults)

    def _bare(self, obj: Object) -> Object:
        """A copy without what only the API server writes, and without status where that is a subresource."""
        metadata = {key: value for key, value in obj["metadata"].items() if key not in _SYSTEM_FIELDS}
        if not self.kind.namespaced:
            metadata.pop("namespace", None)
        fresh = {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata}
        dropped = {"status"} if self.kind.status else set()
        return fresh | {key: value for key, value in obj.items() if key not in fresh and key not in dropped}

    def _ownable(self, obj: Object) -> Object:
        """The part of `obj` that this writer may change and managers own."""
        if self.subresource == "status":
            return {"status": obj["status"]} if obj.get("status") is not None else {}
        if self.subresource == "scale":
            return {"spec": {"replicas": (obj.get("spec") or {}).get("replicas")}}
        owned = {key: value for key, value in _content(obj).items() if not (key == "status" and self.kind.status)}
        metadata = {key: obj["metadata"][key] for key in _OWNED_METADATA if obj["metadata"].get(key)}
        return owned | ({"metadata": metadata} if metadata else {})

    def _with_owned(self, before: Object, owned: Object) -> Object:
        """`before` with its ownable part replaced."""
        if self.subresource == "status":
            kept = {key: value for key, value in before.items() if key != "status"}
            return {**kept, "metadata": dict(before["metadata"]), **owned}
        if self.subresource == "scale":
            spec = {**(before.get("spec") or {}), **owned["spec"]}
            return {**before, "metadata": dict(before["metadata"]), "spec": spec}
        kept_metadata = {key: value for key, value in before["metadata"].items() if key not in _OWNED_METADATA}
        kept = {key: before[key] for key in ("apiVersion", "kind", "status") if key in before}
        kept = kept if self.kind.status else {key: value for key, value in kept.items() if key != "status"}
        return {**kept, **owned, "metadata": kept_metadata | owned.get("metadata", {})}

    def _me(self, operation: Operation) -> Manager:
        return Manager(self.manager, operation, self.subresource, self.kind.api_version, self.now, frozenset())

    def _managed(self, obj: Object, managers: Sequence[Manager]) -> Object:
        return {**obj, "metadata": {**obj["metadata"], "managedFields": fieldsets.write_managers(managers)}}


def check_preconditions(kind: Kind, before: Object | None, metadata: Mapping[str, Any]) -> None:
    """Raise Conflict when `metadata` names another uid or resourceVersion than the object has."""
    for name, present in (("uid", uid_of), ("resourceVersion", version_of)):
        wanted = metadata.get(name)
        if wanted and (before is None or wanted != present(before)):
            found = f"it is {present(before)!r} now" if before is not None else "there is no such object"
            raise Conflict(
                f"{kind} {metadata.get('name', '')!r}: {name} {wanted!r} was asked for but {found}: read it again"
            )


def delete(kind: Kind, before: Object, now: str, deadline: str, grace: int | None) -> Object | Remove:
    """`before` marked for deletion, or removed when nothing holds it.

    `now` and `deadline` (the end of the grace period) are RFC 3339. A second deletion may only shorten the grace.
    """
    metadata = before["metadata"]
    seconds = grace_of(kind, before, grace)
    if is_deleting(before) and seconds >= int(metadata.get("deletionGracePeriodSeconds", 0)):
        return vanish(before)
    marked = {**metadata, "deletionTimestamp": deadline if seconds else now, "deletionGracePeriodSeconds": seconds}
    if not is_deleting(before):
        marked["generation"] = generation_of(before) + 1
    return vanish({**before, "metadata": marked})


def grace_of(kind: Kind, obj: Object, asked: int | None) -> int:
    """Seconds that the object has before it goes; only Pods have any."""
    if kind != POD:
        return 0
    if asked is not None:
        return max(asked, 0)
    stated = (obj.get("spec") or {}).get("terminationGracePeriodSeconds")
    return int(stated) if stated is not None else DEFAULT_POD_GRACE


def vanish(obj: Object) -> Object | Remove:
    """Remove an object that is being deleted and that nothing holds any more."""
    metadata = obj["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return Remove(obj) if is_deleting(obj) and not held else obj


def _content(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}


def _desired(kind: Kind, obj: Object) -> Object:
    """What raises the generation when it changes: all but metadata and status."""
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata", "status")}


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
