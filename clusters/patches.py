"""JSON merge patch and JSON patch on objects, with the errors of the Kubernetes API. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec
from jsonpointer import JsonPointerException, resolve_pointer

from clusters.errors import Conflict, FieldError, Invalid
from clusters.objects import Object

LARGEST_JSON_PATCH = 10_000
"""Operations in one JSON patch; the limit of kube-apiserver."""

LARGEST_COPIES = 3 * 1024 * 1024
"""Bytes that all `copy` operations of one JSON patch may copy together; each may double what is there. The limit of
kube-apiserver (`--json-patch-max-copy-bytes`)."""


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: maps merge, null removes, all else replaces. Neither argument is changed; parts are shared."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Object, operations: Sequence[Mapping[str, Any]], what: str) -> Object:
    """RFC 6902 applied to a copy of `target`; `what` names the object in errors.

    Raises Conflict when a `test` fails, Invalid when an operation is malformed or its path does not exist.
    """
    if len(operations) > LARGEST_JSON_PATCH:
        raise _invalid(what, f"{len(operations)} operations: at most {LARGEST_JSON_PATCH} are allowed")
    try:
        copied = msgspec.json.decode(msgspec.json.encode(target))  # some 15 times as fast as a deep copy
        patched = _apply(copied, [dict(operation) for operation in operations], what)
        msgspec.json.encode(patched)  # raises for what is nested too deep: two copies into one another do that
    except jsonpatch.JsonPatchTestFailed as error:
        raise Conflict(f"{what}: the JSON patch's test failed: {_first_line(error)}") from error
    except (jsonpatch.JsonPatchException, JsonPointerException) as error:
        raise _invalid(what, f"the JSON patch cannot be applied: {_first_line(error)}") from error
    except RecursionError as error:
        raise _invalid(what, "the JSON patch nests values too deep: write them flatter") from error
    except (TypeError, KeyError, IndexError, ValueError, AttributeError) as error:  # the library's own unchecked cases
        raise _invalid(what, f"the JSON patch cannot be applied: {_first_line(error)}") from error
    if not isinstance(patched, dict):
        raise _invalid(what, "the JSON patch replaces the whole object by something that is none")
    return patched


def _apply(value: Any, operations: Sequence[dict[str, Any]], what: str) -> Any:
    """`value` changed by all of them, within the bound of copies. Raises Invalid, and whatever the library does."""
    patch = jsonpatch.JsonPatch(operations)  # each is well-formed before the first is applied
    if not any(operation["op"] == "copy" for operation in operations):
        return patch.apply(value, in_place=True)
    copied = 0
    for operation in operations:
        if operation["op"] == "copy":
            copied += len(msgspec.json.encode(resolve_pointer(value, operation["from"])))
            if copied > LARGEST_COPIES:
                raise _invalid(
                    what, f"the JSON patch copies more than {LARGEST_COPIES} bytes: send the values themselves"
                )
        value = jsonpatch.JsonPatch([operation]).apply(value, in_place=True)
    return value


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _invalid(what: str, message: str) -> Invalid:
    return Invalid(what, [FieldError("", message)])
