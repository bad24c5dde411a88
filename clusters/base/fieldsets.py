"""Server-side apply: ownership of fields, and the merge of applied fields into the live object. Pure.

Fields are paths of FieldsV1 elements (https://kubernetes.io/docs/reference/using-api/server-side-apply/): `f:name` for
a map's key. Maps are granular and lists atomic, except for the two lists that every object has: `metadata.finalizers`
(a set, elements `v:"name"`) and `metadata.ownerReferences` (keyed by uid, elements `k:{"uid":"…"}`, each atomic).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusters.base.errors import Conflict
from clusters.base.managed_fields import FINALIZERS, OWNER_REFERENCES, FieldManager, FieldSet, Path, item_element
from clusters.base.objects import Object


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of an apply: the merged object, whose managedFields are stale, and its managers."""

    object: Object
    managers: tuple[FieldManager, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf field with its value: scalars, lists, empty maps, and the items of the two keyed lists."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from leaves(child, (*path, f"f:{key}"))
    elif path in (FINALIZERS, OWNER_REFERENCES) and isinstance(value, list) and value:
        for item in value:
            yield (*path, item_element(path, item)), item
    elif path:
        yield path, value


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, true differs from 1, and 1 from 1.0."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(key in other and same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def changed(before: Any, after: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the leaf fields whose value differs. A map that only becomes empty does not count as a change."""
    if same(before, after):
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in before.keys() | after.keys():
            element = (*path, f"f:{key}")
            if key not in after:
                yield from (field for field, _ in leaves(before[key], element))
            elif key not in before:
                yield from (field for field, _ in leaves(after[key], element))
            else:
                yield from changed(before[key], after[key], element)
    elif path in (FINALIZERS, OWNER_REFERENCES):
        former, present = dict(leaves(before, path)), dict(leaves(after, path))
        for field in former.keys() | present.keys():
            if not same(former.get(field), present.get(field)):
                yield field
    else:
        yield from {field for field, _ in (*leaves(before, path), *leaves(after, path))}


def updated(
    managers: Sequence[FieldManager], before: Object, after: Object, me: FieldManager
) -> tuple[FieldManager, ...]:
    """Return the managers after an update (create, patch, scale) by `me`, which owns the fields that it changed.

    `before` and `after` contain only fields that can be owned. `me.fields` is ignored.
    """
    touched = frozenset(changed(before, after))
    mine = frozenset(field for field in touched if has(after, field))
    kept = [replace(manager, fields=manager.fields - touched) for manager in managers]
    former = next((manager for manager in kept if manager.identity == me.identity), None)
    if former is None:
        return _with_fields(*kept, replace(me, fields=mine))
    renewed = replace(former, fields=former.fields | mine, time=me.time if touched else former.time)
    return _with_fields(*(renewed if manager is former else manager for manager in kept))


def apply(
    managers: Sequence[FieldManager], live: Object, wanted: Object, me: FieldManager, *, force: bool, what: str
) -> ApplyResult:
    """Merge `wanted`, all fields that `me` applies, into `live`. Both contain only fields that can be owned.

    Unless `force`, raises Conflict with every field that another manager owns with another value.
    """
    wanted = without_nulls(wanted)
    merged = _merge(live, wanted)
    touched = frozenset(changed(live, merged))
    others = [manager for manager in managers if manager.identity != me.identity]
    conflicts = [(field, manager) for manager in others for field in sorted(manager.fields & touched)]
    if conflicts and not force:
        raise _conflict(what, conflicts)
    others = [replace(manager, fields=manager.fields - touched) for manager in others]
    mine = frozenset(field for field, _ in leaves(wanted))
    former = next((manager for manager in managers if manager.identity == me.identity), None)
    dropped = former.fields - mine if former is not None else frozenset()
    _remove_dropped(merged, dropped, mine, others)
    if former is not None and former.fields == mine and not touched:
        me = former
    return ApplyResult(merged, _with_fields(*others, replace(me, fields=mine)))


def without_nulls(value: Any) -> Any:
    """Return a copy without the null fields of maps at every depth: apply ignores them. Lists are unchanged."""
    if not isinstance(value, Mapping):
        return value
    return {key: without_nulls(child) for key, child in value.items() if child is not None}


def has(obj: Any, path: Path) -> bool:
    """Return whether the object has the field."""
    return _find(obj, path) is not _ABSENT


def spell(path: Path) -> str:
    """Return a field path in its readable form: `spec.traffic`, `metadata.labels[a.b/c]`."""
    text = ""
    for element in path:
        kind, _, name = element.partition(":")
        if kind != "f" or "." in name or "/" in name:
            text += f"[{name}]"
        else:
            text += f".{name}" if text else name
    return text


_ABSENT = object()


def _with_fields(*managers: FieldManager) -> tuple[FieldManager, ...]:
    return tuple(manager for manager in managers if manager.fields)


def _find(obj: Any, path: Path) -> Any:
    for depth, element in enumerate(path):
        if isinstance(obj, list) and path[:depth] in (FINALIZERS, OWNER_REFERENCES):
            obj = next((item for item in obj if item_element(path[:depth], item) == element), _ABSENT)
        elif isinstance(obj, Mapping) and element[2:] in obj:
            obj = obj[element[2:]]
        else:
            return _ABSENT
        if obj is _ABSENT:
            return _ABSENT
    return obj


def _merge(live: Any, wanted: Any, path: Path = ()) -> Any:
    """Return a new value: maps are merged at every depth and copied, and keyed lists are merged by item."""
    if isinstance(wanted, Mapping):
        base = live if isinstance(live, Mapping) else {}
        merged = {key: _merge(child, child, (*path, f"f:{key}")) for key, child in base.items() if key not in wanted}
        return merged | {key: _merge(base.get(key), child, (*path, f"f:{key}")) for key, child in wanted.items()}
    if path in (FINALIZERS, OWNER_REFERENCES) and isinstance(wanted, list):
        items = {item_element(path, item): item for item in (live if isinstance(live, list) else ())}
        items |= {item_element(path, item): item for item in wanted}
        return list(items.values())
    return wanted


def _remove_dropped(merged: Object, dropped: FieldSet, mine: FieldSet, others: Sequence[FieldManager]) -> None:
    """Remove from `merged` the dropped fields that no manager owns, and the maps that become empty."""
    fields = mine.union(*(manager.fields for manager in others))
    owned = {field[:depth] for field in fields for depth in range(1, len(field) + 1)}  # with all ancestors
    for field in sorted(dropped, key=len, reverse=True):
        path = field
        while path and path not in owned:
            value = _find(merged, path)
            if value is _ABSENT or (path != field and value not in ({}, [])):
                break
            _remove(merged, path)
            path = path[:-1]


def _remove(obj: Object, path: Path) -> None:
    parent = _find(obj, path[:-1])
    if isinstance(parent, list):
        parent[:] = [item for item in parent if item_element(path[:-1], item) != path[-1]]
    else:
        del parent[path[-1][2:]]


def _conflict(what: str, conflicts: Sequence[tuple[Path, FieldManager]]) -> Conflict:
    fields = sorted({spell(field) for field, _ in conflicts})
    owned = sorted(
        {f"{spell(field)} is owned by {manager.name!r} ({manager.operation})" for field, manager in conflicts}
    )
    return Conflict(f"{what}: {'; '.join(owned)}: leave the field out, or force", fields)
