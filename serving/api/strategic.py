"""Strategic merge patch of the core kinds that callers may write: Namespace, Secret and ConfigMap. Pure.

kubectl sends it for core kinds in `apply`, `edit`, `patch` and `diff`. Maps merge as in a JSON merge patch, and lists
are replaced, but for the two lists of ObjectMeta with the patch strategy `merge`: `finalizers`, and `ownerReferences`
by uid.

Source: apimachinery `pkg/util/strategicpatch/patch.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clusters.errors import FieldError, Invalid
from clusters.objects import Object
from clusters.patches import merge_patch

DIRECTIVE: Final = "$patch"
RETAIN: Final = "$retainKeys"
DELETE_PREFIX: Final = "$deleteFromPrimitiveList/"
ORDER_PREFIX: Final = "$setElementOrder/"
MERGE_KEYS: Final = {"finalizers": "", "ownerReferences": "uid"}
"""Lists of `metadata` that merge, by the key of their items; the items of an empty key are texts."""


def strategic_merge_patch(present: Object, patch: Mapping[str, Any], what: str) -> Object:
    """Return `present` with `patch` applied. `what` names the object in errors. Raises Invalid."""
    try:
        merged = _merge_map(present, patch, "")
    except (TypeError, AttributeError, KeyError) as error:
        raise Invalid(what, [FieldError("", f"the strategic merge patch is malformed: {error}")]) from error
    return dict(merged)


def _merge_map(present: Any, patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    directive = patch.get(DIRECTIVE)
    content = {name: value for name, value in patch.items() if not name.startswith("$")}
    if directive == "replace":
        return content
    if directive == "delete":
        return {}
    merged = dict(present) if isinstance(present, Mapping) else {}
    if (retained := patch.get(RETAIN)) is not None:
        merged = {name: value for name, value in merged.items() if name in retained}
    lists = {name for name in MERGE_KEYS if path == "metadata" and (name in content or DELETE_PREFIX + name in patch)}
    for name in lists:
        removed = patch.get(DELETE_PREFIX + name) or ()
        items = _merge_list(merged.get(name) or [], content.pop(name, []), removed, MERGE_KEYS[name])
        merged[name] = items
    for name, value in content.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            merged[name] = _merge_map(merged.get(name), value, name if not path else f"{path}.{name}")
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _merge_list(present: list[Any], patch: Any, removed: Any, key: str) -> list[Any]:
    if patch is None:
        return []
    if not key:
        kept = [item for item in present if item not in removed]
        return [*kept, *(item for item in patch if item not in kept)]
    if any(item.get(DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if DIRECTIVE not in item]
    merged = {item[key]: item for item in present}
    for item in patch:
        if item.get(DIRECTIVE) == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = _merge_map(merged.get(item[key]), item, "")
    return list(merged.values())
