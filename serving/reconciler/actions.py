"""The kinds of writes in a plan, and the test whether an object needs one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.base.objects import Key, Kind, Object, annotations_of, key_of, version_of
from serving.types.annotations import ANNOTATION_APPLIED


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a whole object; `force` for one that the Model controls, to correct drift.

    `version` is the resourceVersion from which the write was planned: a later write of another client is not
    overwritten. It is empty for a new object.
    """

    kind: Kind
    object: Object
    force: bool
    version: str = ""

    @classmethod
    def over(cls, kind: Kind, wanted: Object, live: Object | None) -> Apply:
        """Make the apply of `wanted` over `live`, or of a new object."""
        return cls(kind, wanted, live is not None, version_of(live) if live is not None else "")


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of an object that Knative created; `version` as in Apply."""

    kind: Kind
    key: Key
    patch: Object
    version: str = ""

    @classmethod
    def of(cls, kind: Kind, live: Object, patch: Object) -> Patch:
        """Make a patch of `live`."""
        return cls(kind, key_of(live), patch, version_of(live))


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of the object with this uid, at any version."""

    kind: Kind
    key: Key
    uid: str
    version: str = ""


Action = Apply | Patch | Delete


def needs_apply(wanted: Object, live: Object) -> bool:
    """Return whether `wanted` must be applied: it differs from the last apply, or another client changed the object."""
    if annotations_of(wanted).get(ANNOTATION_APPLIED) != annotations_of(live).get(ANNOTATION_APPLIED):
        return True
    owners = wanted["metadata"].get("ownerReferences") or ()
    present = {reference["uid"] for reference in live["metadata"].get("ownerReferences") or ()}
    if any(owner["uid"] not in present for owner in owners):
        return True
    metadata = {key: value for key, value in wanted["metadata"].items() if key != "ownerReferences"}
    return not _within(metadata, live["metadata"]) or not _within(wanted["spec"], live.get("spec"))


def _within(part: object, whole: object) -> bool:
    """Return whether `whole` has all values of `part`. Lists have the same items in the same order, with any fields."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(_within(value, whole.get(key)) for key, value in part.items())
    if isinstance(part, list):
        if not isinstance(whole, list) or len(part) != len(whole):
            return False
        return all(_within(one, other) for one, other in zip(part, whole, strict=True))
    return part == whole
