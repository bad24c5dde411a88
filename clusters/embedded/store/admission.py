"""Validate the identity and the metadata of objects of any kind.

Source of the rules: `apimachinery` `pkg/api/validation/objectmeta.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from clusters.base.errors import FieldError, shown_name
from clusters.base.names import dns_label_fault, label_key_fault, label_value_fault, subdomain_fault
from clusters.base.objects import NAMESPACE, Kind, Object
from clusters.base.sizes import format_size

Validator = Callable[[Object | None, Object], Sequence[FieldError]]
"""Called with the old and the new object before a create (the old one is None) and any update except of the status."""

LARGEST_ANNOTATIONS = 256 * 1024
"""Maximum bytes of all annotations of an object, keys and values (`TotalAnnotationSizeLimitB`)."""
LONGEST_MANAGER = 128
"""Maximum characters of a field manager's name."""


def shape_faults(kind: Kind, obj: object) -> list[FieldError]:
    """Return why `obj` is not an object of `kind`. All other functions require that there are no such faults."""
    if not isinstance(obj, dict):
        return [FieldError("", "it is not an object")]
    faults = []
    for field, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if obj.get(field, expected) != expected:
            faults.append(FieldError(field, f"{obj[field]!r} is not {expected!r}"))
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return [*faults, FieldError("metadata", "an object with a name is required")]
    for field, value in metadata.items():
        if (check := _CHECKS.get(field)) is not None:
            faults += check(_PATHS[field], value) if value is not None else ()
    return faults


def unknown_fields(obj: Object) -> frozenset[str]:
    """Return the names of fields of the metadata that ObjectMeta does not have, unless their value is null."""
    metadata = obj["metadata"]
    return frozenset(field for field in metadata.keys() - _KNOWN_FIELDS if metadata[field] is not None)


def unknown_faults(before: Object | None, obj: Object) -> list[FieldError]:
    """Return the unknown fields of `obj`, except those that the stored object `before` already has."""
    brought = unknown_fields(obj)
    if brought and before is not None:
        brought -= unknown_fields(before)
    return [FieldError(f"metadata.{shown_name(field)}", "unknown field") for field in sorted(brought)]


def metadata_faults(kind: Kind, obj: Object) -> list[FieldError]:
    """Return the faults of name, namespace, labels, annotations, finalizers and ownerReferences."""
    metadata = obj["metadata"]
    name_fault = dns_label_fault if kind.resource == NAMESPACE.resource else subdomain_fault
    faults = []
    if fault := name_fault(metadata.get("name") or ""):
        faults.append(FieldError("metadata.name", fault))
    if kind.namespaced and (fault := dns_label_fault(metadata.get("namespace") or "")):
        faults.append(FieldError("metadata.namespace", fault))
    for key, value in (metadata.get("labels") or {}).items():
        if fault := label_key_fault(key):
            faults.append(FieldError("metadata.labels", fault))
        if fault := label_value_fault(value):
            faults.append(FieldError(f"metadata.labels[{key}]", fault))
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if fault := label_key_fault(finalizer):
            faults.append(FieldError(f"metadata.finalizers[{index}]", fault))
    if annotations := metadata.get("annotations"):
        faults += _annotation_faults(annotations)
    if owners := metadata.get("ownerReferences"):
        faults += _owner_faults(owners)
    return faults


def manager_faults(manager: str) -> Iterator[FieldError]:
    """Yield the faults of a field manager's name."""
    if not 0 < len(manager) <= LONGEST_MANAGER or not manager.isprintable():
        yield FieldError("fieldManager", f"{manager[:40]!r} must have 1 to {LONGEST_MANAGER} printable characters")


def _owner_faults(references: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    """Yield the faults that `ValidateOwnerReferences` of apimachinery finds."""
    for index, reference in enumerate(references):
        path = f"metadata.ownerReferences[{index}]"
        for field in ("apiVersion", "kind", "name", "uid"):
            if not isinstance(reference.get(field), str) or not reference[field]:
                yield FieldError(f"{path}.{field}", "a string is required")
        for field in ("controller", "blockOwnerDeletion"):
            if not isinstance(reference.get(field) or False, bool):
                yield FieldError(f"{path}.{field}", "it must be true or false")
        version = reference.get("apiVersion")
        if isinstance(version, str) and version and (version.count("/") > 1 or version.endswith("/")):
            yield FieldError(f"{path}.apiVersion", f"{version[:100]!r} is not GROUP/VERSION or VERSION")
        if (version, reference.get("kind")) == ("v1", "Event"):
            yield FieldError(path, "an Event of v1 cannot own other objects")
    if sum(bool(reference.get("controller")) for reference in references) > 1:
        yield FieldError("metadata.ownerReferences", "only one of them may have controller: true")


def _annotation_faults(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    for key in annotations:
        if fault := label_key_fault(key.lower()):
            yield FieldError("metadata.annotations", fault)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > LARGEST_ANNOTATIONS:
        yield FieldError(
            "metadata.annotations",
            f"they have {format_size(size)}: at most {format_size(LARGEST_ANNOTATIONS)} are allowed",
        )


def _string_faults(path: str, value: object) -> Sequence[FieldError]:
    return () if isinstance(value or "", str) else (FieldError(path, "it must be a string"),)


def _string_map_faults(path: str, value: Any) -> Iterable[FieldError]:
    try:  # the fastest way to check a valid map, which is what nearly all are
        "".join(value)
        "".join(value.values())
    except (TypeError, AttributeError):
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            return (FieldError(path, "it must be a map of strings"),)
        return [
            FieldError(f"{path}[{key}]", f"{text!r} is not a string: put it in quotes")
            for key, text in value.items()
            if not isinstance(text, str)
        ]
    return ()


def _list_faults(path: str, value: object, item: type, items: str) -> Iterator[FieldError]:
    if not (isinstance(value, list) and all(isinstance(entry, item) for entry in value)):
        yield FieldError(path, f"it must be a list of {items}")


_STRINGS = ("name", "generateName", "namespace", "uid", "resourceVersion")
_CHECKS: Mapping[str, Callable[[str, object], Iterable[FieldError]]] = {
    **dict.fromkeys(_STRINGS, _string_faults),
    "labels": _string_map_faults,
    "annotations": _string_map_faults,
    "finalizers": partial(_list_faults, item=str, items="strings"),
    "ownerReferences": partial(_list_faults, item=dict, items="objects"),
}
_OTHER_FIELDS = frozenset(
    {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "selfLink"}
)
"""Fields of ObjectMeta that only the API server sets; the values of clients are ignored."""
_KNOWN_FIELDS = _OTHER_FIELDS.union(_CHECKS)
_PATHS = {field: f"metadata.{field}" for field in _CHECKS}
