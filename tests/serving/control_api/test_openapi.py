"""The OpenAPI v3 documents that `kubectl explain` reads."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec
import pytest

from clusters.base.objects import EVENT, KINDS, MODEL, POD, SECRET, SERVICE, Kind
from serving.control_api.openapi import V2_PROTOBUF, OpenApi, schema_name
from serving.crds.definition import make_schema
from tests.manifests.schemas import references
from tests.serving.control_api.conftest import Served
from tests.serving.control_api.test_resources import AUTHORIZED, call


def path_of(kind: Kind) -> str:
    """Return the path of the document that has a kind."""
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"


PATHS = sorted(set(map(path_of, KINDS)))


def document(path: str) -> Any:
    """Return a document of the server's kinds."""
    return msgspec.json.decode(OpenApi(KINDS).document(path) or b"null")


def schema(kind: Kind) -> Any:
    """Return the schema of a kind, from its document."""
    return document(path_of(kind))["components"]["schemas"][schema_name(kind)]


@pytest.mark.parametrize("path", PATHS)
def test_every_document_is_valid_and_complete(path: str) -> None:
    found = document(path)
    schemas = found["components"]["schemas"]

    assert set(references(found)) <= set(schemas)
    for kind in (kind for kind in KINDS if path == path_of(kind)):
        own = schemas[schema_name(kind)]
        assert {"apiVersion", "kind", "metadata"} < set(own["properties"])
        assert own["properties"]["metadata"]["allOf"]
        assert own["x-kubernetes-group-version-kind"] == [
            {"group": kind.group, "version": kind.version, "kind": kind.kind}
        ]
    from openapi_spec_validator import OpenAPIV30SpecValidator  # an import of a second, which all workers would pay

    OpenAPIV30SpecValidator(without_defaults(found)).validate()


def without_defaults(value: Any) -> Any:
    """Return the document without defaults: Kubernetes' own are not valid where fields are required."""
    if isinstance(value, dict):
        return {name: without_defaults(one) for name, one in value.items() if name != "default"}
    return [without_defaults(one) for one in value] if isinstance(value, list) else value


def test_fields_are_those_of_the_definitions() -> None:
    assert schema(MODEL)["properties"]["spec"] == make_schema(MODEL)["properties"]["spec"]
    assert {"data", "stringData", "type", "immutable"} < set(schema(SECRET)["properties"])
    assert {"spec", "status"} < set(schema(POD)["properties"])
    assert "involvedObject" in schema(EVENT)["properties"]
    assert schema(SERVICE)["properties"]["spec"]["properties"]["template"]["properties"]["spec"]["$ref"]


async def test_a_document_has_an_address_that_changes_with_its_content(served: Served) -> None:
    _, index = await call(served, "GET", "/openapi/v3")
    address = index["paths"]["apis/knodel.dev/v1alpha1"]["serverRelativeURL"]
    async with aiohttp.ClientSession(f"http://127.0.0.1:{served.port}", headers=AUTHORIZED) as session:
        async with session.get(address) as answer:
            assert answer.status == 200
            assert "immutable" in answer.headers["Cache-Control"]
            assert answer.headers["ETag"].strip('"') in address
            assert "Model" in await answer.text()
        async with session.get(address.partition("?")[0]) as answer:
            assert "Cache-Control" not in answer.headers
    assert (await call(served, "GET", "/openapi/v3/apis/nobody.dev/v1"))[0] == 404


@pytest.mark.parametrize("version", [".v1.0", "@v1.0"])
async def test_openapi_v2_is_an_empty_document_in_the_encoding_that_kubectl_reads(served: Served, version: str) -> None:
    media_type = f"application/com.github.proto-openapi.spec.v2{version}+protobuf"
    async with (
        aiohttp.ClientSession(headers=AUTHORIZED) as session,
        session.get(f"http://127.0.0.1:{served.port}/openapi/v2", headers={"Accept": media_type}) as answer,
    ):
        body = await answer.read()
        assert answer.headers["Content-Type"] == V2_PROTOBUF
        assert answer.headers["Vary"] == "Accept"
    assert body.startswith(b"\n\x032.0\x12")  # Document.swagger, Document.info
    assert len(body) == 7 + body[6]


async def test_openapi_v2_as_json_names_where_the_schemas_are(served: Served) -> None:
    status, found = await call(served, "GET", "/openapi/v2")
    assert status == 200
    assert (found["swagger"], found["paths"]) == ("2.0", {})
    assert "/openapi/v3" in found["info"]["title"]
