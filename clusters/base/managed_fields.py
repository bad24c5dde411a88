"""`metadata.managedFields`, the owners of fields: conversion between FieldsV1 and sets of paths. Pure.

Format: https://kubernetes.io/docs/reference/using-api/server-side-apply/#managed-fields. A path's elements are those of
FieldsV1: `f:name` for a map's key, `v:…` and `k:…` for a list's item.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from clusters.base.objects import Object

Path = tuple[str, ...]
FieldSet = frozenset[Path]
Operation = Literal["Apply", "Update"]

FINALIZERS: Path = ("f:metadata", "f:finalizers")
OWNER_REFERENCES: Path = ("f:metadata", "f:ownerReferences")

SHARED_FIELD_SETS = 1024
"""Distinct field sets that are shared; objects of one kind from one manager usually have the same set."""
SELF = "."  # the FieldsV1 element for "the map itself", beside its children


@dataclass(frozen=True, slots=True)
class FieldManager:
    """An entry of `metadata.managedFields`. `time` is in RFC 3339."""

    name: str
    operation: Operation
    subresource: str
    api_version: str
    time: str
    fields: FieldSet

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return the values that are equal in two entries of the same manager."""
        return (self.name, self.operation, self.subresource)


def read_managers(obj: Object) -> tuple[FieldManager, ...]:
    """Return the managers in `metadata.managedFields`."""
    return tuple(
        FieldManager(
            name=entry["manager"],
            operation=entry["operation"],
            subresource=entry.get("subresource", ""),
            api_version=entry["apiVersion"],
            time=entry["time"],
            fields=frozenset(_read_fields(entry["fieldsV1"], ())),
        )
        for entry in obj["metadata"].get("managedFields") or ()
    )


def write_managers(managers: Iterable[FieldManager]) -> list[Object]:
    """Return `metadata.managedFields` for these managers, the inverse of `read_managers`."""
    return [_entry(manager, _write_fields(manager.fields)) for manager in managers]


def write_created(manager: FieldManager, obj: Object) -> list[Object]:
    """Return the `managedFields` of an object that `manager` created and owns; `manager.fields` is ignored.

    The result equals that of `fieldsets.updated` and `write_managers` for a new object, in a tenth of the time.
    """
    fields = _created(obj)
    metadata = obj.get("metadata") or {}
    for name, element in (("finalizers", _value_element), ("ownerReferences", _owner_element)):
        if items := metadata.get(name):
            fields["f:metadata"][f"f:{name}"] = {key: {} for key in sorted(map(element, items))}
    return [_entry(manager, fields)] if fields else []


def item_element(path: Path, item: Any) -> str:
    """Return the path element of an item of one of the two granular lists."""
    return _owner_element(item) if path == OWNER_REFERENCES else _value_element(item)


def share_field_sets(obj: Object) -> None:
    """Replace the field sets of a newly read object by equal shared ones, which saves a third of its memory."""
    for entry in obj["metadata"].get("managedFields") or ():
        entry["fieldsV1"] = _shared(entry["fieldsV1"])


def _read_fields(fields: Mapping[str, Any], path: Path) -> Iterator[Path]:
    if not fields and path:
        yield path
    for element, children in fields.items():
        if element == SELF:
            yield path
        else:
            yield from _read_fields(children, (*path, element))


def _write_fields(fields: FieldSet) -> Object:
    tree: Object = {}
    for field in sorted(fields):  # a map comes before its children
        node = tree
        for depth, element in enumerate(field, start=1):
            if field[:depth] in fields and depth < len(field):
                node = node.setdefault(element, {})
                node.setdefault(SELF, {})
            else:
                node = node.setdefault(element, {})
    return tree


def _created(value: Object) -> Object:
    """Return the FieldsV1 of all leaves of a map, in its order, which equally made objects share."""
    return {f"f:{key}": _created(child) if isinstance(child, dict) else {} for key, child in value.items()}


def _value_element(item: Any) -> str:
    return "v:" + json.dumps(item, separators=(",", ":"), sort_keys=True)


def _owner_element(item: Any) -> str:
    if not isinstance(item, Mapping):
        return _value_element(item)
    return "k:" + json.dumps({"uid": item.get("uid", "")}, separators=(",", ":"))


def _shared(fields: Object) -> Object:
    if len(_field_sets) >= SHARED_FIELD_SETS:
        _field_sets.clear()  # the objects keep those in use
    return _field_sets.setdefault(msgspec.json.encode(fields), fields)


_field_sets: dict[bytes, Object] = {}


def _entry(manager: FieldManager, fields: Object) -> Object:
    entry: Object = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": manager.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": _shared(fields),
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry
