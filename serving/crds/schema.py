"""Makers of OpenAPI v3 schemas and CEL rules for our CustomResourceDefinitions. Pure.

Structural schemas: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/.
An optional field may also be null, as in `serving.types`: `mapping` makes all but the required fields nullable, and
CEL's `has()` is false for null. Lists are atomic, as in the `Cluster` protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.types.reader import Fault, short_repr

Schema = dict[str, Any]
"""A structural schema as JSON."""

RULES = "x-kubernetes-validations"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
LONGEST_WORD = 64
"""Maximum length of an enumerated string. The API server uses it to estimate the cost of rules."""


def rule(expression: str, message: str, field: str = "") -> Schema:
    """Return a CEL rule. `field` is the path of the refused field below that schema (`.percent`)."""
    return {"rule": expression, "message": message, **({"fieldPath": field} if field else {})}


def quoted(text: str) -> str:
    """Return a CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def matches(pattern: str) -> str:
    """Return a CEL expression: all of `self` matches `pattern`, which must mean the same in RE2 and Python."""
    return f"self.matches({quoted(f'^(?:{pattern})$')})"


def words_of(fault: Fault, bad: str) -> str:
    """Return the message of `fault` for `bad` without the value, which the API server adds."""
    return fault(bad).removesuffix(f", not {short_repr(bad)}").removesuffix(f", not {len(bad)}")


def text(about: str, longest: int, *rules: Schema, least: int | None = None) -> Schema:
    """Return the schema of a string of `least` to `longest` characters."""
    bounds = {"maxLength": longest} | ({"minLength": least} if least is not None else {})
    return _ruled({"description": about, "type": "string", **bounds}, rules)


def choice(about: str, choices: Sequence[str], message: str, *rules: Schema) -> Schema:
    """Return the schema of an enumerated string. It is a rule, because an `enum` does not accept null."""
    return text(about, LONGEST_WORD, rule(f"self in [{', '.join(map(quoted, choices))}]", message), *rules)


def integer(about: str, least: int, most: int) -> Schema:
    """Return the schema of an integer within bounds."""
    return {"description": about, "type": "integer", "format": "int32", "minimum": least, "maximum": most}


def number(about: str, least: float, most: float) -> Schema:
    """Return the schema of a number. A rule repeats `minimum`: the API server compares 0 with its integer part."""
    bounds = {"type": "number", "format": "double", "minimum": least, "maximum": most}
    return _ruled({"description": about, **bounds}, [rule(f"self >= {least}", f"must be at least {least:g}")])


def flag(about: str) -> Schema:
    """Return the schema of a boolean."""
    return {"description": about, "type": "boolean"}


def plain(type: str, about: str = "", **more: Any) -> Schema:
    """Return a schema with a type and no bounds, for fields that our controllers write."""
    return {**({"description": about} if about else {}), "type": type, **more}


def opaque(about: str = "") -> Schema:
    """Return the schema of an object with any fields."""
    return plain("object", about, **{PRESERVE: True})


def array(about: str, item: Schema, most: int, *rules: Schema) -> Schema:
    """Return the schema of a list of 1 to `most` items."""
    bounds = {"minItems": 1, "maxItems": most, "x-kubernetes-list-type": "atomic"}
    return _ruled({"description": about, "type": "array", **bounds, "items": item}, rules)


def listing(about: str, item: Schema) -> Schema:
    """Return the schema of a list of any length, for lists that our controllers write."""
    return {"description": about, "type": "array", "x-kubernetes-list-type": "atomic", "items": item}


def record(about: str, properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """Return the schema of an object that our controllers write."""
    needed = {"required": list(required)} if required else {}
    return {"description": about, "type": "object", **needed, "properties": dict(properties)}


def mapping(about: str, properties: Mapping[str, Schema], *rules: Schema, required: Sequence[str] = ()) -> Schema:
    """Return the schema of an object that users write. Fields that are not required may be absent or null."""
    fields = {name: schema if name in required else {**schema, "nullable": True} for name, schema in properties.items()}
    return _ruled(record(about, fields, required), rules)


def refused(later: Mapping[str, str]) -> list[Schema]:
    """Return rules that refuse unsupported fields. The schema has the fields, so that they are not pruned silently."""
    return [rule(f"!has(self.{name})", f"not supported yet: {words}", f".{name}") for name, words in later.items()]


def _ruled(schema: Schema, rules: Sequence[Schema]) -> Schema:
    return {**schema, RULES: list(rules)} if rules else schema
