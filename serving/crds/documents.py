"""The JSON schema for editors and the reference page, made from the tables of fields. Pure.

`make manifests` writes them to `docs/schema/knodel.json` and `docs/reference.md`; a test keeps them equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from clusters.base import durations
from clusters.base.objects import MODEL, OWN_KINDS
from serving.crds.definition import TABLES, make_schema
from serving.types.event_source import EventMapping
from serving.types.fields import Duration, Field, Flag, Text, Texts
from serving.types.schema import INT_OR_STRING, RULES, Schema
from serving.types.settings.settings import describe_settings
from serving.types.tables import Items, Nested, table_of

DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The newest dialect that yaml-language-server supports entirely."""
KUBERNETES_ONLY: Final = ("format", "nullable")
"""Keywords that have another meaning in JSON Schema, or none. Null means absence, which editors should report."""


def make_json_schema() -> Schema:
    """Return the JSON schema of the kinds whose objects users write. It accepts objects of other groups."""
    definitions = {
        kind.kind: {
            "description": table.about,
            "type": "object",
            "required": ["metadata", "spec"],
            "properties": {
                "apiVersion": {"const": kind.api_version},
                "kind": {"const": kind.kind},
                "metadata": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": _field_schema(Text("Name.", table.name))},
                },
                "spec": _field_schema(Nested("", table.spec)),
                "status": {"type": "object"},
            },
            "additionalProperties": False,
        }
        for kind, table in TABLES.items()
    }
    ours = {"properties": {"apiVersion": {"pattern": f"^{re.escape(MODEL.group)}/"}}, "required": ["apiVersion"]}
    kinds = [kind.kind for kind in OWN_KINDS]
    return {
        "$schema": DIALECT,
        "title": "Knodel",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
        "if": ours,
        "then": {
            "properties": {"apiVersion": {"const": MODEL.api_version}, "kind": {"enum": kinds}},
            "allOf": [
                {"if": {"properties": {"kind": {"const": name}}}, "then": {"$ref": f"#/definitions/{name}"}}
                for name in definitions
            ],
        },
        "definitions": definitions,
    }


def _field_schema(field: Field) -> Schema:
    """Return the JSON schema of a field: its OpenAPI schema without extensions, with patterns and defaults."""
    schema = _without_extensions(field.schema()) | {"description": field.description()}
    if field.default is not None:
        schema["default"] = field.default
    if isinstance(field, Text) and field.format.example:
        schema["examples"] = [field.format.example]
    match field:
        case Nested():
            schema["properties"] = {name: _field_schema(one) for name, one in table_of(field.table).items()}
        case Items():
            schema["items"] = _field_schema(field.item)
        case Texts():
            schema["propertyNames"] = {"pattern": f"^({field.keys.pattern})$"}
            schema["additionalProperties"] = _without_extensions(schema["additionalProperties"])
        case Duration():
            word = f"{field.word[0]}|" if field.word[0] else ""
            schema["pattern"] = f"^({word}{durations.DURATION.pattern})$"
        case Text(format=format) if format.choices:
            schema["enum"] = list(format.choices)
        case Text(format=format) if format.pattern:
            schema["pattern"] = f"^({format.pattern})$"
    return schema


def _without_extensions(schema: Schema) -> Schema:
    kept = {name: one for name, one in schema.items() if not name.startswith("x-") and name not in KUBERNETES_ONLY}
    if schema.get(INT_OR_STRING):
        kept["type"] = ["integer", "string"]
    if "properties" in schema:
        kept["properties"] = {name: _without_extensions(one) for name, one in schema["properties"].items()}
        kept["additionalProperties"] = False
    return kept


def make_reference() -> str:
    """Return the reference page: every field of every kind, and the settings of a platform."""
    parts = [
        "# Reference",
        "<!-- Made from the tables in serving/types by make manifests: do not edit. -->",
        "Every field of Knodel's kinds, as `kubectl explain model.spec` shows them, and every setting of a platform.\n"
        "Fields in **bold** are required. A path with `[]` is a field of each entry of a list.",
        _EDITORS,
    ]
    for kind in OWN_KINDS:
        schema = make_schema(kind)
        parts += [f"## {kind.kind}", f"`{kind.api_version}`. {schema['description']}"]
        if kind in TABLES:
            whole = Nested("", TABLES[kind].spec)
            parts += [_table(("Field", "Type", "Default", "Description"), _rows(whole, "spec"))]
            if rules := list(_messages(schema, "")):
                parts += ["Rules:", "\n".join(f"- {one}" for one in rules)]
        else:
            parts += [_table(("Field", "Type", "Description"), _schema_rows(schema, "spec"))]
        parts += [
            f"### Status of {kind.kind}",
            _table(("Field", "Type", "Description"), _schema_rows(schema, "status")),
        ]
    settings = (
        (f"`{one['key']}`", f"`{one['variable']}`", str(one["default"]), one["unit"], one["for"])
        for one in describe_settings()
    )
    parts += [
        "## Settings",
        "In the file of `knodel up --config FILE`, in variables, or in the ConfigMap `knodel-config` on Kubernetes.",
        _table(("Setting", "Variable", "Default", "Unit", "Purpose"), settings),
    ]
    return "\n\n".join(parts) + "\n"


_EDITORS: Final = """\
Editors complete and check manifests with the JSON schema [schema/knodel.json](schema/knodel.json). For
yaml-language-server (VS Code, Neovim, Helix and others), begin a manifest with this line. The path is relative to the
manifest, or a URL:

    # yaml-language-server: $schema=../docs/schema/knodel.json"""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _rows(field: Nested, path: str) -> Iterator[tuple[str, str, str, str]]:
    for name, one in sorted(table_of(field.table).items(), key=lambda item: not item[1].required):
        below = f"{path}.{name}"
        shown = f"**`{below}`**" if one.required else f"`{below}`"
        about = one.description() if isinstance(one, Nested) else one.about
        yield shown, _type(one), one.default_text(), f"{about} {one.bounds()}".strip()
        inner = one.item if isinstance(one, Items) else one
        if isinstance(inner, Nested):
            yield from _rows(inner, f"{below}[]" if isinstance(one, Items) else below)
        for inner_name in {} if isinstance(inner, Nested) else one.schema().get("properties", {}):
            shown, kind, about = next(_schema_rows(one.schema(), inner_name, f"{below}."))
            yield shown, kind, "", about


def _type(field: Field) -> str:
    match field:
        case Items():
            return f"list of {_type(field.item)}"
        case Text(format=format) if format.choices:
            return ", ".join(f"`{one}`" for one in format.choices)
        case _:
            return _TYPES.get(type(field), type(field).__name__.lower())


_TYPES: Final[Mapping[type, str]] = {
    Text: "text", Texts: "mapping of texts", Flag: "true or false", Nested: "mapping", EventMapping: "mapping",
}  # fmt: skip
_WRITTEN_TYPES: Final = {"string": "text", "boolean": "true or false", "object": "mapping", "array": "list"}


def _schema_rows(schema: Schema, name: str, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Return the rows of what controllers write, which has only types and descriptions."""
    one, below = schema["properties"][name], f"{path}{name}"
    kind = one.get("type", "any")
    yield f"`{below}`", _WRITTEN_TYPES.get(kind, kind), one.get("description", "")
    if one.get("type") == "array":
        one, below = one["items"], f"{below}[]"
    for inner in one.get("properties", ()):
        yield from _schema_rows(one, inner, f"{below}.")


def _messages(schema: Schema, path: str) -> Iterator[str]:
    """Return the messages of rules that concern several fields."""
    if "properties" in schema:
        for one in schema.get(RULES, ()):
            where = f"{path}{one.get('fieldPath', '')}".removeprefix(".")
            if not one["rule"].startswith("!has(self.") or "||" in one["rule"]:
                yield f"`{where}`: {one['message']}."
    elif "items" in schema:
        yield from (f"`{path.removeprefix('.')}`: {one['message']}." for one in schema.get(RULES, ()))
    for name, one in schema.get("properties", {}).items():
        yield from _messages(one, f"{path}.{name}")
    if "items" in schema:
        yield from _messages(schema["items"], f"{path}[]")
