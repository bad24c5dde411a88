"""What the API server checks of every object whatever its kind: its identity and its metadata. Pure.

Source of the rules: `apimachinery` `pkg/api/validation/objectmeta.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clusters.errors import FieldError
from clusters.names import dns_label_fault, label_key_fault, label_value_fault, subdomain_fault
from clusters.objects import NAMESPACE, Kind, Object

Validator = Callable[[Object | None, Object], Sequence[FieldError]]
"""Called with (old, new) at a create (old is None) and at a change of anything but the status."""

LARGEST_ANNOTATIONS = 256 * 1024
"""Bytes of all annotations of an object, keys and values (`TotalAnnotationSizeLimitB`)."""
LONGEST_MANAGER = 128
"""Characters of a field manager's name."""


def shape_faults(kind: Kind, obj: object) -> Iterator[FieldError]:
    """What keeps `obj` from being an object of `kind` at all; everything else may rely on these."""
    if not isinstance(obj, dict):
        yield FieldError("", "it is no map")
        return
    for field, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if obj.get(field, expected) != expected:
            yield FieldError(field, f"{obj[field]!r} is not {expected!r}, the one that this is about")
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        yield FieldError("metadata", "a map with at least a name is required")
        return
    for field in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(field) or "", str):
            yield FieldError(f"metadata.{field}", "it must be a text")
    for field in ("labels", "annotations"):
        yield from _texts_faults(f"metadata.{field}", metadata.get(field))
    yield from _list_faults("metadata.finalizers", metadata.get("finalizers"), str, "texts")
    yield from _list_faults("metadata.ownerReferences", metadata.get("ownerReferences"), dict, "maps")


def metadata_faults(kind: Kind, obj: Object) -> Iterator[FieldError]:
    """What is wrong with names, labels, annotations, finalizers and ownerReferences; `shape_faults` found nothing."""
    metadata = obj["metadata"]
    name_fault = dns_label_fault if kind == NAMESPACE else subdomain_fault
    yield from _fault("metadata.name", name_fault(metadata.get("name") or ""))
    if kind.namespaced:
        yield from _fault("metadata.namespace", dns_label_fault(metadata.get("namespace") or ""))
    for key, value in (metadata.get("labels") or {}).items():
        yield from _fault("metadata.labels", label_key_fault(key))
        yield from _fault(f"metadata.labels[{key}]", label_value_fault(value))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _fault("metadata.annotations", label_key_fault(key.lower()))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > LARGEST_ANNOTATIONS:
        yield FieldError("metadata.annotations", f"they have {size} bytes: at most {LARGEST_ANNOTATIONS} are allowed")
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        yield from _fault(f"metadata.finalizers[{index}]", label_key_fault(finalizer))
    yield from _owner_faults(metadata.get("ownerReferences") or ())


def manager_faults(manager: str) -> Iterator[FieldError]:
    """What is wrong with a field manager's name."""
    if not 0 < len(manager) <= LONGEST_MANAGER or not manager.isprintable():
        yield FieldError("fieldManager", f"{manager[:40]!r} must have 1 to {LONGEST_MANAGER} printable characters")


def _owner_faults(references: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    for index, reference in enumerate(references):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not isinstance(reference.get(field), str) or not reference[field]:
                yield FieldError(f"metadata.ownerReferences[{index}].{field}", "a text is required")
    if sum(bool(reference.get("controller")) for reference in references) > 1:
        yield FieldError("metadata.ownerReferences", "only one of them may have controller: true")


def _texts_faults(path: str, value: object) -> Iterator[FieldError]:
    if value is None:
        return
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        yield FieldError(path, "it must be a map of texts")
        return
    for key, text in value.items():
        if not isinstance(text, str):
            yield FieldError(f"{path}[{key}]", f"{text!r} must be a text: put it in quotes")


def _list_faults(path: str, value: object, item: type, items: str) -> Iterator[FieldError]:
    if value is not None and not (isinstance(value, list) and all(isinstance(entry, item) for entry in value)):
        yield FieldError(path, f"it must be a list of {items}")


def _fault(path: str, message: str) -> Iterator[FieldError]:
    if message:
        yield FieldError(path, message)
