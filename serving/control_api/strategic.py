"""Strategic merge patch of the core kinds that callers may write: Namespace, Secret and ConfigMap. Pure.

kubectl sends it for core kinds in `apply`, `edit`, `patch` and `diff`. Maps merge as in a JSON merge patch, and lists
are replaced, but for the two lists of ObjectMeta with the patch strategy `merge`: `finalizers`, and `ownerReferences`
by uid.

Directives that apimachinery refuses are refused here, with its status: 400 for a malformed list of a directive, 422 for
the rest, where apimachinery often has 500. A directive that apimachinery ignores without a word is refused too: an
unknown one, or one for a list that does not merge.

Source: apimachinery `pkg/util/strategicpatch/patch.go`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clusters.base.errors import FieldError, Invalid, shown_name
from clusters.base.objects import Object
from clusters.base.patches import merge_patch
from serving.control_api.status import MalformedRequest

DIRECTIVE: Final = "$patch"
RETAIN: Final = "$retainKeys"
DELETE_PREFIX: Final = "$deleteFromPrimitiveList/"
ORDER_PREFIX: Final = "$setElementOrder/"
MERGE_KEYS: Final = {"metadata.finalizers": "", "metadata.ownerReferences": "uid"}
"""Lists that merge, by the key of their items; the items of an empty key are texts."""


def strategic_merge_patch(present: Object, patch: Mapping[str, Any], what: str) -> Object:
    """Return `present` with `patch` applied. `what` names the object in errors. Raises MalformedRequest, Invalid."""
    return _Merge(what).map(present, patch, "")


class _Merge:
    """One patch; `what` names its object."""

    def __init__(self, what: str) -> None:
        self._what = what

    def map(self, present: Any, patch: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Return the map at `path` with `patch` merged into it."""
        content = {name: value for name, value in patch.items() if not name.startswith("$")}
        if DIRECTIVE in patch:
            directive = patch[DIRECTIVE]
            if directive not in ("replace", "delete"):
                raise self._invalid(_join(path, DIRECTIVE), f"{_shown(directive)} is not replace or delete")
            return content if directive == "replace" else {}
        merged = dict(present) if isinstance(present, Mapping) else {}
        if RETAIN in patch:
            retained = self._retained(patch, _join(path, RETAIN))
            merged = {name: value for name, value in merged.items() if name in retained}
        for name in self._lists(patch, path):
            merged[name] = self._list(merged.get(name) or [], patch, path, name)
            content.pop(name, None)
        for name, value in content.items():
            if value is None:
                merged.pop(name, None)
            elif isinstance(value, Mapping):
                merged[name] = self.map(merged.get(name), value, _join(path, name))
            else:
                merged[name] = merge_patch(merged.get(name), value)
        return merged

    def _retained(self, patch: Mapping[str, Any], path: str) -> Sequence[str]:
        """Return the names that `$retainKeys` keeps, among which all names that the patch sets must be."""
        names = self._texts(patch[RETAIN], path)
        known = {*names, RETAIN}
        for name, value in patch.items():
            if value is not None and name not in known and not name.startswith((DELETE_PREFIX, ORDER_PREFIX)):
                raise self._malformed(path, f"{shown_name(name)!r} is set by the patch: name it here too")
        return names

    def _lists(self, patch: Mapping[str, Any], path: str) -> Iterable[str]:
        """Return the names of the lists that `patch` merges at `path`, each once."""
        names: dict[str, None] = {}
        for name in patch:
            prefix = next((one for one in (DELETE_PREFIX, ORDER_PREFIX) if name.startswith(one)), "")
            list_name = name.removeprefix(prefix)
            if prefix and _join(path, list_name) not in MERGE_KEYS:
                raise self._invalid(_join(path, name), f"{_join(path, list_name)} is not a list that merges")
            if name.startswith("$") and not prefix and name != RETAIN:
                if name.startswith((DELETE_PREFIX[:-1], ORDER_PREFIX[:-1])):
                    raise self._malformed(_join(path, name), "the name of its list is missing: DIRECTIVE/LIST")
                raise self._invalid(_join(path, name), "unknown directive")
            if _join(path, list_name) in MERGE_KEYS and (prefix or patch[name] is not None):
                names[list_name] = None
        return names

    def _list(self, present: Sequence[Any], patch: Mapping[str, Any], path: str, name: str) -> list[Any]:
        """Return the list `name` of the map at `path`, merged, in the order that apimachinery gives it."""
        where, key = _join(path, name), MERGE_KEYS[_join(path, name)]
        given, is_replaced, deleted = self._items(patch.get(name, []), where, key)
        if (removed := patch.get(DELETE_PREFIX + name, _ABSENT)) is not _ABSENT:
            if key:
                raise self._invalid(_join(path, DELETE_PREFIX + name), f"{where} has maps: use {DIRECTIVE}: delete")
            deleted |= set(self._texts(removed, _join(path, DELETE_PREFIX + name)))
        before = {} if is_replaced else {item[key] if key else item: item for item in present}
        merged = {value: item for value, item in before.items() if value not in deleted}
        for value, item in given.items():
            merged[value] = self.map(merged.get(value), item, where) if key else item
        order = list(given)
        if ORDER_PREFIX + name in patch:
            order = self._order(patch[ORDER_PREFIX + name], _join(path, ORDER_PREFIX + name), key)
            self._check_order(given, order, _join(path, ORDER_PREFIX + name))
        return [merged[value] for value in _ordered(merged, list(before), order)]

    def _items(self, items: Any, where: str, key: str) -> tuple[dict[str, Any], bool, set[str]]:
        """Return the items to merge by their keys, whether they replace all others, and the keys of those to delete."""
        if not isinstance(items, list):
            raise self._invalid(where, "it must be a list")
        given: dict[str, Any] = {}
        is_replaced, deleted = False, set[str]()
        for index, item in enumerate(items):
            place = f"{where}[{index}]"
            directive = item.get(DIRECTIVE, _ABSENT) if key and isinstance(item, dict) else _ABSENT
            if directive == "replace":
                is_replaced = True
            elif directive == "delete":
                deleted.add(self._key(item, place, key))
            elif directive is _ABSENT:
                given[self._key(item, place, key)] = item
            else:
                raise self._invalid(f"{place}.{DIRECTIVE}", f"{_shown(directive)} is not replace or delete")
        return given, is_replaced, deleted

    def _key(self, item: Any, place: str, key: str) -> str:
        """Return the identity of an item in a list: the item itself, or its value of the merge key."""
        if not key:
            if not isinstance(item, str):
                raise self._invalid(place, "it must be a text")
            return item
        if not isinstance(item, dict):
            raise self._invalid(place, "it must be a map")
        value = item.get(key)
        if not isinstance(value, str) or not value:
            raise self._invalid(f"{place}.{key}", f"a text is required: items of this list merge by {key}")
        return value

    def _order(self, items: Any, path: str, key: str) -> list[str]:
        if not isinstance(items, list):
            raise self._malformed(path, "it must be a list")
        return [self._key(item, f"{path}[{index}]", key) for index, item in enumerate(items)]

    def _check_order(self, given: Iterable[str], order: Sequence[str], path: str) -> None:
        """Refuse an order that lacks an item of the patch, or has two of them the other way round."""
        places = {value: place for place, value in enumerate(order)}
        last = -1
        for value in given if order else ():
            place = places.get(value, -1)
            if place <= last:
                raise self._malformed(path, f"it does not have {shown_name(value)!r} in the order of the patch's list")
            last = place

    def _texts(self, items: Any, path: str) -> list[str]:
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self._malformed(path, "it must be a list of texts")
        return items

    def _malformed(self, path: str, fault: str) -> MalformedRequest:
        return MalformedRequest(f"{self._what}: the strategic merge patch is malformed: {path}: {fault}")

    def _invalid(self, path: str, fault: str) -> Invalid:
        return Invalid(self._what, [FieldError(path, fault)])


_ABSENT: Final = object()


def _ordered(merged: Iterable[str], before: Sequence[str], order: Sequence[str]) -> list[str]:
    """Return the keys of `merged`: those of `order` in that order, the others at their former positions among them."""
    wanted, former = ({value: place for place, value in enumerate(values)} for values in (order, before))
    first = sorted((value for value in merged if value in wanted), key=wanted.__getitem__)
    others = deque(value for value in merged if value not in wanted)
    result: list[str] = []
    for value in first:
        place = former.get(value, -1)
        while others and former.get(others[0], len(before)) < place:
            result.append(others.popleft())
        result.append(value)
    return [*result, *others]


def _join(path: str, name: str) -> str:
    shown = shown_name(name)
    return f"{path}.{shown}" if path else shown


def _shown(value: object) -> str:
    return repr(value)[:40]
