"""The writes that a plan is made of, and when an object has to be written at all. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.objects import Key, Kind, Object, annotations_of
from serving.apis.annotations import ANNOTATION_APPLIED


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a whole object; `force` for one that is ours already, so that drift is mended."""

    kind: Kind
    object: Object
    force: bool


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of an object that Knative made."""

    kind: Kind
    key: Key
    patch: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of exactly this object."""

    kind: Kind
    key: Key
    uid: str


Action = Apply | Patch | Delete


def differs(wanted: Object, live: Object) -> bool:
    """Whether `wanted` has to be applied: it is not what was applied last, or somebody changed it since."""
    if annotations_of(wanted).get(ANNOTATION_APPLIED) != annotations_of(live).get(ANNOTATION_APPLIED):
        return True
    owners = wanted["metadata"].get("ownerReferences") or ()
    present = {reference["uid"] for reference in live["metadata"].get("ownerReferences") or ()}
    if any(owner["uid"] not in present for owner in owners):
        return True
    metadata = {key: value for key, value in wanted["metadata"].items() if key != "ownerReferences"}
    return not _within(metadata, live["metadata"]) or not _within(wanted["spec"], live.get("spec"))


def _within(part: object, whole: object) -> bool:
    """Whether `whole` says all that `part` says; items of lists in their order, more fields in them allowed."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(_within(value, whole.get(key)) for key, value in part.items())
    if isinstance(part, list):
        if not isinstance(whole, list) or len(part) != len(whole):
            return False
        return all(_within(one, other) for one, other in zip(part, whole, strict=True))
    return part == whole
