"""The OpenAPI documents of the served kinds. Pure.

OpenAPI v3 has a document for each group version, as in kube-apiserver. OpenAPI v2 has one document without definitions.
kubectl reads it if v3 has no document for a manifest's group version or kind. It then finds no schema, and reports
`no matches for kind`; without the document it would suggest `--validate=false`.

`kubectl explain` reads the schemas. kubectl also looks for the query parameter `fieldValidation` of a kind's PATCH
operation (k8s.io/kubectl, `QueryParamVerifierV3`), and leaves validation to the server when it finds it.

Schemas of our kinds are those of their definitions (`serving/crds`). Those of Kubernetes' and Knative's kinds
are the published ones, in `schemas.json` (Apache License 2.0, made by `make schemas`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from clusters.base.objects import OWN_KINDS, Kind, Object
from serving.crds.definition import make_schema
from serving.types.schema import Schema

SCHEMAS: Final = Path(__file__).with_name("schemas.json")
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
REFERENCE: Final = "#/components/schemas/"
WRITE_PARAMETERS: Final = ("fieldValidation", "fieldManager", "force", "dryRun")
V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The media type of a `Document` of gnostic's `OpenAPIv2.proto`; client-go writes `@v1.0` in place of `.v1.0`."""
V2_TITLE: Final = "Knodel: the schemas are in /openapi/v3"
_CORE_NAME: Final = "io.k8s.api"
"""Prefix of schema names of Kubernetes' groups: `io.k8s.api.apps.v1.Deployment`."""


class OpenApi:
    """The documents of the kinds of one server."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds

    def index(self) -> Object:
        """Return `/openapi/v3`: the address of each document, which changes with its content."""
        entries = {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self.hashes[path]}"} for path in self.hashes}
        return {"paths": entries}

    def document(self, path: str) -> bytes | None:
        """Return `/openapi/v3/apis/GROUP/VERSION` or `/openapi/v3/api/v1` as JSON, None if there is no such group."""
        own = [kind for kind in self._kinds if _path(kind) == path]
        if not own:
            return None
        known = msgspec.json.decode(SCHEMAS.read_bytes(), type=dict[str, Any])
        known |= {schema_name(kind): make_schema(kind) for kind in own if kind in OWN_KINDS}
        schemas = {schema_name(kind): _rooted(kind, known.get(schema_name(kind), {})) for kind in own}
        waiting = list(schemas.values())
        while waiting:
            for name in _references(waiting.pop()):
                if name not in schemas:
                    schemas[name] = known[name]
                    waiting.append(known[name])
        return msgspec.json.encode(
            {
                "openapi": "3.0.0",
                "info": {"title": "Knodel", "version": own[0].version},
                "paths": {_item_path(kind): _operations(kind) for kind in own},
                "components": {"schemas": dict(sorted(schemas.items()))},
            }
        )

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The digest of each document, by its path."""
        paths = sorted({_path(kind) for kind in self._kinds})
        return {path: hashlib.sha256(self.document(path) or b"").hexdigest() for path in paths}


def document_v2(accept: str) -> tuple[bytes, str]:
    """Return `/openapi/v2` and its media type: protobuf where the header `accept` begins with it, else JSON."""
    if accept.strip().replace("@v1.0", ".v1.0").startswith(V2_PROTOBUF):
        info = _protobuf_text(1, V2_TITLE.encode()) + _protobuf_text(2, b"2.0")
        return _protobuf_text(1, b"2.0") + _protobuf_text(2, info), V2_PROTOBUF
    document = {"swagger": "2.0", "info": {"title": V2_TITLE, "version": "2.0"}, "paths": {}, "definitions": {}}
    return msgspec.json.encode(document), "application/json"


def schema_name(kind: Kind) -> str:
    """Return the name of a kind's schema as kube-apiserver has it, for example `io.k8s.api.apps.v1.Deployment`."""
    parts = kind.group.split(".")
    if not kind.group or len(parts) == 1 or kind.group.endswith(".k8s.io"):
        return f"{_CORE_NAME}.{parts[0] or 'core'}.{kind.version}.{kind.kind}"
    return f"{'.'.join(reversed(parts))}.{kind.version}.{kind.kind}"


def _protobuf_text(number: int, content: bytes) -> bytes:
    """Encode a field of up to 127 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def _rooted(kind: Kind, schema: Schema) -> Schema:
    """Return the schema of a kind with what each object has: apiVersion, kind, metadata, and its coordinates."""
    described = {
        "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
        "kind": {"type": "string", "description": "REST resource that this object represents."},
        **schema.get("properties", {}),
    }
    metadata = described.get("metadata", {})
    if "allOf" not in metadata:  # of a definition, which cannot refer to other schemas
        about = metadata.get("description", "Standard object metadata.")
        described["metadata"] = {"allOf": [{"$ref": REFERENCE + OBJECT_META}], "description": about}
    open_schema = {} if schema else {"x-kubernetes-preserve-unknown-fields": True}
    coordinates = {"x-kubernetes-group-version-kind": [_coordinates(kind)]}
    return {"type": "object", **open_schema, **schema, "properties": described, **coordinates}


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.removeprefix(REFERENCE)
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _path(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"


def _item_path(kind: Kind) -> str:
    scope = "namespaces/{namespace}/" if kind.namespaced else ""
    return f"/{_path(kind)}/{scope}{kind.plural}/{{name}}"


def _operations(kind: Kind) -> Object:
    names = ("namespace", "name") if kind.namespaced else ("name",)
    text = {"type": "string"}
    return {
        "parameters": [{"name": name, "in": "path", "required": True, "schema": text} for name in names],
        "get": _operation(kind, "get", ()),
        "patch": _operation(kind, "patch", WRITE_PARAMETERS),
    }


def _operation(kind: Kind, action: str, parameters: Iterable[str]) -> Object:
    reference = {"$ref": REFERENCE + schema_name(kind)}
    return {
        "operationId": f"{action}{kind.kind}",
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in parameters],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _coordinates(kind),
    }


def _coordinates(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
