"""The few words of OpenAPI v3 and CEL that our CustomResourceDefinitions are written in. Pure.

Structural schemas: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/.
What a caller leaves out may also be null, as the Python door has it: `mapping` makes all but the required fields
nullable, and CEL's `has()` is false for a null. Lists are atomic, as the `Cluster` protocol has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.types.reader import Fault, show

Schema = dict[str, Any]
"""A structural schema as JSON."""

RULES = "x-kubernetes-validations"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
LONGEST_WORD = 64
"""Characters of a text that is one of a few: the cost of rules is estimated by it."""


def rule(expression: str, message: str, field: str = "") -> Schema:
    """A CEL rule; `field` is the path of the refused field below the schema that bears the rule (`.percent`)."""
    return {"rule": expression, "message": message, **({"fieldPath": field} if field else {})}


def quoted(text: str) -> str:
    """A CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def matches(pattern: str) -> str:
    """A CEL expression: the whole of `self` matches the pattern, which RE2 and Python must read alike."""
    return f"self.matches({quoted(f'^(?:{pattern})$')})"


def words_of(fault: Fault, bad: str) -> str:
    """What the Python door says to `bad`, without the value, which the API server names itself."""
    return fault(bad).removesuffix(f", not {show(bad)}").removesuffix(f", not {len(bad)}")


def text(about: str, longest: int, *rules: Schema, least: int | None = None) -> Schema:
    """A text of `least` to `longest` characters that obeys the rules."""
    bounds = {"maxLength": longest} | ({"minLength": least} if least is not None else {})
    return _ruled({"description": about, "type": "string", **bounds}, rules)


def choice(about: str, choices: Sequence[str], message: str, *rules: Schema) -> Schema:
    """One of a few texts; as a rule, since an `enum` takes no null."""
    return text(about, LONGEST_WORD, rule(f"self in [{', '.join(map(quoted, choices))}]", message), *rules)


def integer(about: str, least: int, most: int) -> Schema:
    """A whole number within bounds."""
    return {"description": about, "type": "integer", "format": "int32", "minimum": least, "maximum": most}


def number(about: str, least: float, most: float) -> Schema:
    """A number within bounds; a rule as well, since the API server compares a 0 with the whole part of a `minimum`."""
    bounds = {"type": "number", "format": "double", "minimum": least, "maximum": most}
    return _ruled({"description": about, **bounds}, [rule(f"self >= {least}", f"must be at least {least:g}")])


def flag(about: str) -> Schema:
    """True or false."""
    return {"description": about, "type": "boolean"}


def plain(type: str, about: str = "", **more: Any) -> Schema:
    """A value of which only the type is held: what our own controllers write needs no bounds."""
    return {**({"description": about} if about else {}), "type": type, **more}


def opaque(about: str = "") -> Schema:
    """A mapping with anything in it."""
    return plain("object", about, **{PRESERVE: True})


def array(about: str, item: Schema, most: int, *rules: Schema) -> Schema:
    """A list of 1 to `most` items."""
    bounds = {"minItems": 1, "maxItems": most, "x-kubernetes-list-type": "atomic"}
    return _ruled({"description": about, "type": "array", **bounds, "items": item}, rules)


def listing(about: str, item: Schema) -> Schema:
    """A list that our own controllers write, of any length."""
    return {"description": about, "type": "array", "x-kubernetes-list-type": "atomic", "items": item}


def record(about: str, properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """A mapping that our own controllers write."""
    needed = {"required": list(required)} if required else {}
    return {"description": about, "type": "object", **needed, "properties": dict(properties)}


def mapping(about: str, properties: Mapping[str, Schema], *rules: Schema, required: Sequence[str] = ()) -> Schema:
    """A mapping that people write: all but the required fields may be absent or null."""
    fields = {name: schema if name in required else {**schema, "nullable": True} for name, schema in properties.items()}
    return _ruled(record(about, fields, required), rules)


def refused(later: Mapping[str, str]) -> list[Schema]:
    """Known fields of later releases: kept by the schema, so that they are refused by name and never pruned."""
    return [rule(f"!has(self.{name})", f"not supported yet: {words}", f".{name}") for name, words in later.items()]


def _ruled(schema: Schema, rules: Sequence[Schema]) -> Schema:
    return {**schema, RULES: list(rules)} if rules else schema
