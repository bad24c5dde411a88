"""A small judge of structural schemas: types, bounds, required and unknown fields, as the API server judges them. Pure.

CEL rules are left out, but for one: those that match a whole text with a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from serving.types.schema import PRESERVE, RULES, Schema

TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
LARGEST: Mapping[str, int] = {"int32": 2**31 - 1, "int64": 2**63 - 1}
BYTES = ("minLength", "maxLength")
_PATTERN = re.compile(r"self\.matches\('(?P<text>(?:[^'\\]|\\.)*)'\)")


def faults(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """The path of each value that the schema refuses; unknown fields are refused, as with strict field validation."""
    if value is None and schema.get("nullable"):
        return
    if "type" not in schema and schema.get(PRESERVE):  # anything at all
        return
    if not _has_type(schema, value):
        yield path
        return
    if isinstance(value, dict):
        yield from _mapping_faults(schema, value, path)
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield path
        for index, item in enumerate(value):
            yield from faults(schema["items"], item, f"{path}[{index}]")
    elif not _within(schema, value):
        yield path


def pattern_faults(schema: Schema, value: str) -> list[str]:
    """Messages of the rules `self.matches('…')` and `!self.matches('…')` of a text schema that `value` breaks."""
    found = []
    for rule in schema.get(RULES, ()):
        match = _PATTERN.fullmatch(rule["rule"].removeprefix("!"))
        if match is None:
            continue
        pattern = re.sub(r"\\(.)", r"\1", match["text"])
        wanted = not rule["rule"].startswith("!")
        if bool(re.search(_python(pattern), value, re.ASCII)) != wanted:
            found.append(rule["message"])
    return found


def _python(pattern: str) -> str:
    """RE2 to Python: `$` there is the very end."""
    return pattern.removesuffix("$") + r"\Z"


def _has_type(schema: Schema, value: Any) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, str) or _is(value, "integer")
    return _is(value, schema["type"])


def _is(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _mapping_faults(schema: Schema, value: dict[str, Any], path: str) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    if len(value) > schema.get("maxProperties", len(value)):
        yield path
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}"
    for name, one in value.items():
        if name in properties:
            yield from faults(properties[name], one, f"{path}.{name}")
        elif others is not None:
            yield from faults(others, one, f"{path}.{name}")
        elif not schema.get(PRESERVE) and properties:
            yield f"{path}.{name}"


def _within(schema: Schema, value: Any) -> bool:
    if isinstance(value, str):
        choices = schema.get("enum", [value])
        return value in choices and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    if isinstance(value, bool):
        return True
    limit = LARGEST.get(schema.get("format", ""), value)
    return bool(schema.get("minimum", value) <= value <= min(schema.get("maximum", value), limit))
