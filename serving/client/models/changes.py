"""Read, change and write an object with optimistic concurrency: retry when only its status changed meanwhile.

A concurrent change of the spec is a Conflict, so that no other client's change is overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from clusters.base.errors import AlreadyExists, Conflict, NotFound
from clusters.base.objects import (
    EVENT_SOURCE,
    MODEL,
    WARM_POOL,
    Kind,
    Object,
    generation_of,
    name_of,
    namespace_of,
    version_of,
)
from serving.client.api import ApiCalls
from serving.client.effects import Call
from serving.client.models.admission import check_change, check_new

ATTEMPTS = 50  # a status write between a read and its write is rare; this many in a row have another cause

AGAIN = "run the command again"
USER_PARTS = ("spec", "metadata")  # the parts of an object that users write
KIND_NAMES: Mapping[Kind, str] = MappingProxyType(
    {MODEL: "model", WARM_POOL: "warm pool", EVENT_SOURCE: "event source"}
)
"""The kinds that users write, with their names in messages."""

Patch = dict[str, Any]
PatchOf = Callable[[Object], Patch]


def change_model(api: ApiCalls, name: str, namespace: str, patch_of: PatchOf, *, dry_run: bool = False) -> Call[Object]:
    """Apply the merge patch that `patch_of` returns for the current Model, and return the patched Model.

    Raises NotFound, Invalid, and Conflict when the spec changed between the first read and the write.
    """
    return (yield from change_object(api, MODEL, name, namespace, patch_of, dry_run=dry_run))


def change_object(
    api: ApiCalls, kind: Kind, name: str, namespace: str, patch_of: PatchOf, *, dry_run: bool = False
) -> Call[Object]:
    """Do as `change_model`, for any kind of `KIND_NAMES`."""
    seen: int | None = None
    for _ in range(ATTEMPTS):
        obj = yield from api.get(kind, name, namespace)
        if seen not in (None, generation_of(obj)):
            break
        seen = generation_of(obj)
        patch = patch_of(obj)
        if kind is MODEL and not api.server.validates_models:
            yield from check_change(api, obj, patch)
        metadata = {**patch.get("metadata", {}), "resourceVersion": version_of(obj)}
        try:
            return (yield from api.merge(kind, name, namespace, {**patch, "metadata": metadata}, dry_run))
        except Conflict:
            continue  # usually only the status has changed
    raise Conflict(f"{KIND_NAMES[kind]} {name} was changed by another client meanwhile: {AGAIN}")


def store_model(api: ApiCalls, model: Object, *, dry_run: bool = False) -> Call[Object]:
    """Create the Model, or merge the fields of `model` into the existing one; return the stored Model.

    Raises the errors of `change_model`; NotFound only when the namespace does not exist.
    """
    return (yield from store_object(api, MODEL, model, dry_run=dry_run))


def store_object(api: ApiCalls, kind: Kind, obj: Object, *, dry_run: bool = False) -> Call[Object]:
    """Do as `store_model`, for any kind of `KIND_NAMES`."""
    name, namespace = name_of(obj), namespace_of(obj)
    patch = {part: obj[part] for part in USER_PARTS if part in obj}
    try:
        return (yield from change_object(api, kind, name, namespace, lambda _: patch, dry_run=dry_run))
    except NotFound:
        spec = {} if obj.get("spec") is None else obj["spec"]  # the cluster refuses a spec that is not a mapping
        made = {**obj, "spec": without_nulls(spec) if isinstance(spec, dict) else spec}
        return (yield from _create(api, kind, made, dry_run))


def without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without null values: the result of a merge patch on an empty object."""
    return {
        name: without_nulls(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if value is not None
    }


def changed_fields(before: Object, after: Object) -> list[str]:
    """Return a line for each field of spec, labels and annotations that differs, such as `spec.minReplicas: 1 → 3`."""
    pairs = [
        (part, before.get(part), after.get(part)) for part in ("spec",)
    ] + [
        (f"metadata.{part}", (before.get("metadata") or {}).get(part), (after.get("metadata") or {}).get(part))
        for part in ("labels", "annotations")
    ]  # fmt: skip
    return [line for path, old, new in pairs for line in _differences(path, old, new)]


def _differences(path: str, old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    if isinstance(old or {}, dict) and isinstance(new or {}, dict):
        names = sorted({*(old or {}), *(new or {})})
        return [
            line
            for name in names
            for line in _differences(f"{path}.{name}", (old or {}).get(name), (new or {}).get(name))
        ]
    shown = [json.dumps(value, ensure_ascii=False) if value is not None else "none" for value in (old, new)]
    return [f"{path}: {shown[0]} → {shown[1]}"]


def _create(api: ApiCalls, kind: Kind, obj: Object, dry_run: bool) -> Call[Object]:
    name, namespace = name_of(obj), namespace_of(obj)
    if kind is MODEL and not api.server.validates_models:
        yield from check_new(api, obj)
    try:
        return (yield from api.create(kind, obj, namespace, dry_run=dry_run))
    except AlreadyExists as error:
        raise Conflict(f"{KIND_NAMES[kind]} {name} was created by another client meanwhile: {AGAIN}") from error
