"""Read requests to the embedded cluster: copy the object, check its shape, and generate its name.

The copy converts the object to plain JSON (tuples, enums), and isolates the store from later changes by the caller.
Only `create_all` omits it, as its callers do not use the objects afterwards.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from clusters.base.api import PatchType, Subresource
from clusters.base.errors import ClusterError, FieldError, Invalid
from clusters.base.names import dns_label_fault
from clusters.base.objects import Key, Kind, Object
from clusters.base.patches import json_patch, merge_patch
from clusters.embedded.store.admission import shape_faults
from clusters.embedded.store.scale import replicas_of

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated suffixes: without vowels, to avoid words (`SafeEncodeString` of apimachinery)."""
SUFFIX_LENGTH = 5
LONGEST_GENERATED_BASE = 58
"""Maximum characters of `generateName` that are used, so that the generated name fits a DNS label."""


def key_for(kind: Kind, name: str, namespace: str) -> Key:
    """Return the key for a request. Raises Invalid when the namespace is missing."""
    if not kind.namespaced:
        return Key("", name)
    if not namespace:
        raise _invalid(kind, name, "metadata.namespace", "it is required")
    return Key(namespace, name)


def read_object(kind: Kind, obj: Object) -> Object:
    """Return a validated copy of an object to be stored. Raises Invalid."""
    return _checked(kind, _copy(kind, obj))


def read_new(kind: Kind, obj: Object) -> Object | ClusterError:
    """Return the validated object to be created under its own name, or the error. The object is not copied."""
    try:
        fresh = _checked(kind, obj)
        require_no_version(kind, fresh)
    except ClusterError as error:
        return error
    if fresh["metadata"].get("name"):
        return fresh
    return _invalid(kind, "", "metadata.name", "it is required")


def _checked(kind: Kind, obj: Any) -> Object:
    """Return the object if its shape and its namespace are valid. Raises Invalid."""
    if faults := shape_faults(kind, obj):
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        raise Invalid(f"{kind} {name!r}", faults)
    metadata = obj["metadata"]
    if not kind.namespaced:
        return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "namespace"}}
    if fault := dns_label_fault(metadata.get("namespace") or ""):
        missing = not metadata.get("namespace")
        raise _invalid(kind, metadata.get("name", ""), "metadata.namespace", "it is required" if missing else fault)
    fresh: Object = obj
    return fresh


def read_applied(kind: Kind, obj: Object, subresource: Subresource) -> Object:
    """Return a validated copy of an object to be applied; of a Scale only its replicas. Raises Invalid."""
    if subresource == "scale":
        obj = {"metadata": obj.get("metadata"), "spec": {"replicas": replicas_of(kind, obj)}}
    copy = read_object(kind, obj)
    if not copy["metadata"].get("name"):
        raise _invalid(kind, "", "metadata.name", "it is required")
    return copy


def read_patch(
    kind: Kind, key: Key, patch: Mapping[str, Any] | Sequence[Mapping[str, Any]], type: PatchType
) -> Callable[[Object], Object]:
    """Return a function that applies the patch to an object. Raises Invalid when it is not a patch of that type."""
    what = f"{kind} {str(key)!r}"
    copy = _copy(kind, patch)
    if type == "merge" and isinstance(copy, dict):
        return lambda present: dict(merge_patch(present, copy))
    if type == "json" and isinstance(copy, list):
        return lambda present: json_patch(present, copy, what)
    shape = "an object" if type == "merge" else "a list of operations"
    raise Invalid(what, [FieldError("patch", f"a {type} patch must be {shape}")])


def require_no_version(kind: Kind, obj: Object) -> None:
    """Raise Invalid when an object to be created has a resourceVersion."""
    if obj["metadata"].get("resourceVersion"):
        name = obj["metadata"].get("name", "")
        raise _invalid(kind, name, "metadata.resourceVersion", "it must not be set on an object to be created")


def generate_name(kind: Kind, obj: Object) -> Object:
    """Return `obj` with its own name, or with `generateName` and a suffix. Raises Invalid when it has neither."""
    metadata = obj["metadata"]
    if metadata.get("name"):
        return obj
    if not metadata.get("generateName"):
        raise _invalid(kind, "", "metadata.name", "it is required (or metadata.generateName)")
    suffix = "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(SUFFIX_LENGTH))
    name = metadata["generateName"][:LONGEST_GENERATED_BASE] + suffix
    return {**obj, "metadata": {**metadata, "name": name}}


def _copy(kind: Kind, value: object) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(str(kind), [FieldError("", f"it is not JSON: {error}")]) from error


def _invalid(kind: Kind, name: str, path: str, message: str) -> Invalid:
    return Invalid(f"{kind} {name!r}", [FieldError(path, message)])
