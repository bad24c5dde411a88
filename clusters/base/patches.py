"""JSON merge patch and JSON patch on objects, with the errors of the Kubernetes API. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonpatch
from jsonpointer import JsonPointerException, resolve_pointer

from clusters.base.errors import Conflict, FieldError, Invalid
from clusters.base.objects import Object
from clusters.base.redact import printable
from clusters.base.sizes import format_size

LARGEST_JSON_PATCH = 10_000
"""Operations in one JSON patch; the limit of kube-apiserver."""

LARGEST_COPIES = 3 * 1024 * 1024
"""Total bytes that the `copy` operations of one JSON patch may copy, since each may double the object. The limit of
kube-apiserver (`--json-patch-max-copy-bytes`)."""

OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test")
SHOWN: Final = 100
"""Characters of an operation in a message."""
_CONTENT: Final = re.compile(r" not found in .*")
"""The end of the pointer library's message, which contains the value without the member."""
_FAULTS: Final = (
    jsonpatch.JsonPatchException, JsonPointerException,
    TypeError, KeyError, IndexError, ValueError, AttributeError,  # the library's own unchecked cases
)  # fmt: skip


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` with a JSON merge patch (RFC 7386) applied: maps merge, null removes, other values replace.

    Neither argument is changed. The result shares parts with both.
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Object, operations: Sequence[Any], what: str) -> Object:
    """Return a copy of `target` with the operations of a JSON patch (RFC 6902) applied. `what` names it in errors.

    Raises Conflict when a `test` fails, and Invalid when an operation is malformed or its path does not exist. The
    messages contain the index and path of the operation, but no content of the object.
    """
    import msgspec  # servers apply JSON patches; the command also runs without it

    if len(operations) > LARGEST_JSON_PATCH:
        raise _invalid(what, f"{len(operations)} operations: at most {LARGEST_JSON_PATCH} are allowed")
    try:
        value, operations = msgspec.json.decode(msgspec.json.encode((target, operations)))  # faster than a deep copy
        patches = [_parse(index, operation, what) for index, operation in enumerate(operations)]
        copied = 0
        for index, (operation, patch) in enumerate(zip(operations, patches, strict=True)):
            try:
                if operation["op"] == "copy":
                    copied += len(msgspec.json.encode(resolve_pointer(value, operation["from"])))
                if copied > LARGEST_COPIES:
                    limit = f"all copies are larger than {format_size(LARGEST_COPIES)}: send the values themselves"
                    raise _refused(index, operation, limit, what)
                value = patch.apply(value, in_place=True)
            except jsonpatch.JsonPatchTestFailed as error:
                raise Conflict(f"{what}: {_place(index)}: {_described(operation)}: the test failed") from error
            except _FAULTS as error:
                raise _refused(index, operation, _reason(error), what) from error
        msgspec.json.encode(value)  # raises for excessive nesting, which two copies into one another cause
    except RecursionError as error:
        raise _invalid(what, "values are nested too deep: flatten them") from error
    if not isinstance(value, dict):
        raise _invalid(what, "the patch replaces the object by a value that is not a JSON object")
    return value


def _parse(index: int, operation: Any, what: str) -> jsonpatch.JsonPatch:
    """Return a patch of one operation. Raises Invalid for a malformed operation."""
    if not isinstance(operation, dict):
        raise Invalid(what, [FieldError(_place(index), "an operation must be a JSON object")])
    op = operation.get("op")
    if not isinstance(op, str) or op not in OPERATIONS:
        raise _refused(index, operation, f"op must be one of {', '.join(OPERATIONS)}", what)
    if op in ("move", "copy") and not isinstance(operation.get("from"), str):
        raise _refused(index, operation, "from must be the path of the source value", what)
    try:
        return jsonpatch.JsonPatch([operation])
    except _FAULTS as error:
        raise _refused(index, operation, _reason(error), what) from error


def _place(index: int) -> str:
    return f"patch[{index}]"


def _described(operation: Mapping[str, Any]) -> str:
    """Return the operation and its path, cut short: `remove '/spec/x'`."""
    op = operation.get("op")
    return f"{op if op in OPERATIONS else repr(op)[:SHOWN]} {str(operation.get('path'))[:SHOWN]!r}"


def _reason(error: Exception) -> str:
    """Return the first line of the library's message, without the values in it."""
    line = _CONTENT.sub(" not found", str(error).partition("\n")[0])[: 2 * SHOWN] or type(error).__name__
    return printable(line)


def _refused(index: int, operation: Mapping[str, Any], reason: str, what: str) -> Invalid:
    return Invalid(what, [FieldError(_place(index), f"{_described(operation)}: {reason}")])


def _invalid(what: str, message: str) -> Invalid:
    return Invalid(what, [FieldError("patch", message)])
