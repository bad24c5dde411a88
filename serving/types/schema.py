"""Parts of OpenAPI v3 schemas and CEL rules for CustomResourceDefinitions. Pure.

Structural schemas: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/.
Lists are atomic, as in the `Cluster` protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from serving.types.reader import Fault, short_repr

Schema = dict[str, Any]
"""A structural schema as JSON."""

RULES: Final = "x-kubernetes-validations"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE: Final = "x-kubernetes-list-type"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
PRINTABLE: Final = r"[^\pC\pZ]"
"""An RE2 pattern: no control or format character and no white space (what Python's `isprintable` refuses, and ' ')."""


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


def message_of(fault: Fault, bad: str) -> str:
    """Return the message of `fault` for the text `bad` without the value, which the API server adds."""
    return fault(bad).removesuffix(f", not {short_repr(bad)}").removesuffix(f", not {len(bad)}")


def ruled(schema: Schema, rules: Sequence[Schema]) -> Schema:
    """Return the schema with CEL rules."""
    return {**schema, RULES: list(rules)} if rules else schema


def plain(type: str, about: str = "", **more: Any) -> Schema:
    """Return a schema with a type and no bounds, for fields that our controllers write."""
    return {**({"description": about} if about else {}), "type": type, **more}


def opaque(about: str = "") -> Schema:
    """Return the schema of an object with any fields."""
    return plain("object", about, **{PRESERVE: True})


def listing(about: str, item: Schema) -> Schema:
    """Return the schema of a list of any length, for lists that our controllers write."""
    return {"description": about, "type": "array", LIST_TYPE: "atomic", "items": item}


def record(about: str, properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """Return the schema of an object that our controllers write."""
    needed = {"required": list(required)} if required else {}
    return {"description": about, "type": "object", **needed, "properties": dict(properties)}
