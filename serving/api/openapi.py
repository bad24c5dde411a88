"""An OpenAPI v3 document for each group, as much as kubectl needs to send server-side field validation our way.

kubectl looks for the query parameter `fieldValidation` of the PATCH operation of a kind; finding it, it leaves
validation to the server (k8s.io/kubectl, `QueryParamVerifierV3`). The schemas stay open here: the door validates every
field itself and names each wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable

from clusters.objects import Kind, Object

QUERY_PARAMETERS = ("fieldValidation", "fieldManager", "force", "dryRun")


def index(kinds: Iterable[Kind]) -> Object:
    """`/openapi/v3`: where the document of each group version is."""
    paths = sorted({_path(kind) for kind in kinds})
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def document(path: str, kinds: Iterable[Kind]) -> Object | None:
    """`/openapi/v3/apis/GROUP/VERSION` or `/openapi/v3/api/v1`, None when unknown."""
    own = [kind for kind in kinds if _path(kind) == path]
    if not own:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Knodel", "version": "v1alpha1"},
        "paths": {_item_path(kind): _operations(kind) for kind in own},
        "components": {"schemas": {_schema_name(kind): _schema(kind) for kind in own}},
    }


def _path(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"


def _item_path(kind: Kind) -> str:
    scope = "namespaces/{namespace}/" if kind.namespaced else ""
    return f"/{_path(kind)}/{scope}{kind.plural}/{{name}}"


def _operations(kind: Kind) -> Object:
    return {"get": _operation(kind, "get", ()), "patch": _operation(kind, "patch", QUERY_PARAMETERS)}


def _operation(kind: Kind, action: str, parameters: Iterable[str]) -> Object:
    reference = {"$ref": f"#/components/schemas/{_schema_name(kind)}"}
    return {
        "operationId": f"{action}{kind.kind}",
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in parameters],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _coordinates(kind),
    }


def _schema(kind: Kind) -> Object:
    return {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-group-version-kind": [_coordinates(kind)],
    }


def _schema_name(kind: Kind) -> str:
    group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{group}.{kind.version}.{kind.kind}"


def _coordinates(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
