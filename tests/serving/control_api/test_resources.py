"""The control API over plain HTTP: bad input at the door, watches, lists."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from typing import Any

import aiohttp
import pytest
from starlette.requests import Request

from clusters.base.objects import MODEL, SECRET
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.history import BLOCK, LONGEST
from serving.control_api import body as bodies
from serving.control_api.body import QUICK, read
from serving.control_api.status import MalformedRequest
from tests.scenarios.world import model
from tests.serving.control_api.conftest import TOKEN, Served

MODELS = "/apis/knodel.dev/v1alpha1/namespaces/default/models"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
JSON = {"Content-Type": "application/json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}
MERGE = {"Content-Type": "application/merge-patch+json"}


async def call(
    served: Served, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """(status, JSON) of one request."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method,
            f"http://127.0.0.1:{served.port}{path}",
            data=None if body is None else io.BytesIO(body),
            headers=AUTHORIZED | JSON | (headers or {}),
        ) as answer,
    ):
        content = await answer.read()
        return answer.status, json.loads(content) if content.startswith(b"{") else content


@pytest.mark.bad_input("manage-bodies", "manage-queries", "manage-patches")
@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "code"),
    [
        ("POST", MODELS, b"", {}, 400),
        ("POST", MODELS, b"[1]", {}, 400),
        ("POST", MODELS, b"{" * 100_000, {}, 400),
        ("POST", MODELS, b"\xff\xfe", {}, 400),
        ("POST", MODELS, b'{"metadata": 3}', {}, 400),
        ("POST", MODELS, b"{}", {"Content-Type": "text/plain"}, 415),
        ("POST", MODELS, b'{"kind": "Pod", "metadata": {"name": "x"}}', {}, 400),
        ("POST", MODELS, b'{"metadata": {"name": "x", "namespace": "other"}}', {}, 400),
        ("POST", MODELS, b" " * (3 * 1024 * 1024 + 1), {}, 413),
        ("PATCH", f"{MODELS}/x", b"[]", MERGE, 400),
        ("PATCH", f"{MODELS}/x", b"{}", MERGE, 404),
        ("PATCH", f"{MODELS}/x", b"a: &a [*a", APPLY, 400),
        ("PATCH", f"{MODELS}/x", b"spec: {storageUri: 'file:///m', minReplicas: .nan}", APPLY, 400),
        ("PATCH", f"{MODELS}/x?dryRun=all", b"spec: {storageUri: 'file:///m'}", APPLY, 400),
        ("POST", f"{MODELS}?dryRun=All&dryRun=no", b'{"metadata": {"name": "x"}}', {}, 400),
        ("DELETE", f"{MODELS}/x", b"[1]", {}, 400),
        ("DELETE", f"{MODELS}/x", b'{"preconditions": "x"}', {}, 400),
        ("DELETE", f"{MODELS}/x", b'{"preconditions": {"uid": 5}}', {}, 400),
        ("DELETE", f"{MODELS}/x", b'{"preconditions": {"uid": null}}', {}, 404),
        ("PATCH", f"{MODELS}/x", b"{}", {}, 415),
        ("PUT", f"{MODELS}/x", b"{}", {}, 404),
        ("PUT", f"{MODELS}/x", b'{"metadata": {"resourceVersion": "1"}}', {}, 404),
        ("PUT", f"{MODELS}/x", b'{"metadata": {"name": "y", "resourceVersion": "1"}}', {}, 400),
        ("PUT", MODELS, b"{}", {}, 405),
        ("PATCH", f"{MODELS}/x", b"{}", STRATEGIC, 415),
        ("PATCH", "/api/v1/namespaces/default/secrets/x", b"{}", STRATEGIC, 404),
        ("PATCH", "/api/v1/namespaces/default", b"[]", STRATEGIC, 400),
        ("POST", MODELS, b'k8s\0\n\x0f\n\x02v1\x12\tNamespace\x12\0\x1a\0"\0', PROTOBUF, 400),
        ("POST", "/api/v1/namespaces", b"k8s\0\xff\xff\xff", PROTOBUF, 400),
        ("POST", "/api/v1/namespaces", b'{"metadata": {"name": "x"}}', PROTOBUF, 400),
        ("POST", "/api/v1/namespaces", b'k8s\0\n\x09\n\x02v1\x12\x03Pod\x12\0\x1a\0"\0', PROTOBUF, 415),
        ("DELETE", f"{MODELS}/x", b"k8s\0\xff", PROTOBUF, 400),
        ("GET", f"{MODELS}?watch=1&sendInitialEvents=true", None, {}, 422),
        ("DELETE", MODELS, b"", {}, 405),
        ("DELETE", f"{MODELS}/x", b"", {}, 404),
        ("GET", "/apis/knodel.dev/v1alpha1/models/x", None, {}, 404),
        ("GET", f"{MODELS}?labelSelector=%3D%3D", None, {}, 422),
        ("GET", f"{MODELS}?fieldSelector=spec.x%3D1", None, {}, 400),
        ("GET", f"{MODELS}?watch=1&timeoutSeconds=-1", None, {}, 400),
        ("GET", "/apis/nobody.dev/v1", None, {}, 404),
        ("GET", "/nowhere", None, {}, 404),
        ("POST", "/apis/serving.knative.dev/v1/namespaces/default/services", b"{}", {}, 405),
        ("DELETE", "/api/v1/namespaces/default/pods/p", b"", {}, 405),
    ],
)
async def test_bad_requests_get_a_status_and_change_nothing(
    served: Served,
    cluster: EmbeddedCluster,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    code: int,
) -> None:
    status, answer = await call(served, method, path, body, headers)

    assert status == code, answer
    assert answer["kind"] == "Status"
    assert answer["code"] == code
    assert answer["message"]
    assert (await cluster.list(MODEL)).items == []


HEAD = f"POST {MODELS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"{HEAD}Content-Length: {3 * 1024 * 1024 + 1}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()


@pytest.mark.parametrize(
    ("method", "headers", "shape"),
    [
        ("PATCH", MERGE, '{"metadata":{"annotations":{"a":"%s"}}}'),
        ("PATCH", JSON_PATCH, '[{"op":"add","path":"/metadata/annotations","value":{"a":"%s"}}]'),
        ("DELETE", {}, '{"x":"%s"}'),
    ],
)
async def test_a_large_patch_is_parsed_while_others_are_served(
    served: Served, monkeypatch: pytest.MonkeyPatch, method: str, headers: dict[str, str], shape: str
) -> None:
    threads: list[threading.Thread] = []
    parse = bodies.parse_json

    def watched(body: bytes) -> Any:
        threads.append(threading.current_thread())
        return parse(body)

    await call(served, "POST", MODELS, json.dumps(model("a", "default")).encode())
    monkeypatch.setattr(bodies, "parse_json", watched)
    for size in (QUICK + 1, 1):
        body = (shape % ("x" * size)).encode()
        assert (await call(served, method, f"{MODELS}/a?dryRun=All", body, headers))[0] == 200
    large, small = threads
    assert large is not threading.main_thread()
    assert small is threading.main_thread()


@pytest.mark.parametrize(("asked", "status"), [(["All"], 200), (["all"], 400), ("All", 400), ({"a": 1}, 400)])
async def test_a_deletion_that_is_to_be_dry_by_its_body_deletes_nothing(
    served: Served, asked: Any, status: int
) -> None:
    await call(served, "POST", MODELS, json.dumps(model("a", "default")).encode())
    body = json.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": asked}).encode()
    assert (await call(served, "DELETE", f"{MODELS}/a", body))[0] == status
    assert (await call(served, "GET", f"{MODELS}/a"))[0] == 200


async def test_a_caller_that_leaves_within_its_body_is_no_fault_of_ours() -> None:
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    with pytest.raises(MalformedRequest, match="the caller disconnected"):
        await read(Request({"type": "http", "method": "POST", "headers": []}, receive), lambda _: None)


async def test_without_a_token_nothing_is_told(served: Served) -> None:
    status, answer = await call(served, "GET", MODELS, headers={"Authorization": ""})

    assert status == 401
    assert "token" in answer["message"]


async def test_a_watch_starts_with_what_there_is_and_goes_on(served: Served, cluster: EmbeddedCluster) -> None:
    await cluster.create(MODEL, model("a"), manager="test")
    url = f"http://127.0.0.1:{served.port}{MODELS}?watch=1&fieldSelector=metadata.name%3Da&timeoutSeconds=20"
    async with aiohttp.ClientSession() as session, session.get(url, headers=AUTHORIZED) as answer:
        first = json.loads(await answer.content.readline())
        await cluster.create(MODEL, model("b"), manager="test")
        await cluster.patch(MODEL, "a", {"spec": {"version": "2"}}, "default", manager="test")
        second = json.loads(await answer.content.readline())
        await cluster.delete(MODEL, "a", "default")
        third = json.loads(await answer.content.readline())

    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in (first, second, third)]
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_from_a_forgotten_version_ends_with_gone(served: Served, cluster: EmbeddedCluster) -> None:
    most = LONGEST + BLOCK // 100  # it is forgotten by the block, and an object has more than a hundred bytes
    made = [cluster.create(MODEL, model(f"m-{number}"), manager="test") for number in range(most)]
    await asyncio.gather(*made)

    status, answer = await call(served, "GET", f"{MODELS}?watch=1&resourceVersion=1&timeoutSeconds=5")

    assert status == 200
    assert (answer["type"], answer["object"]["code"]) == ("ERROR", 410)


async def test_two_managers_of_one_field_conflict_unless_forced(served: Served) -> None:
    body = json.dumps(model("a", version="1")).encode()
    other = json.dumps(model("a", version="2")).encode()
    await call(served, "PATCH", f"{MODELS}/a?fieldManager=one", body, APPLY)

    status, answer = await call(served, "PATCH", f"{MODELS}/a?fieldManager=two", other, APPLY)
    forced, after = await call(served, "PATCH", f"{MODELS}/a?fieldManager=two&force=true", other, APPLY)

    assert (status, answer["reason"]) == (409, "Conflict")
    assert any("version" in cause["field"] for cause in answer["details"]["causes"])
    assert (forced, after["spec"]["version"]) == (200, "2")


SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.mark.bad_input("manage-patches")
@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"metadata": {"$patch": "merge"}}, 422),
        ({"$patch": "delete"}, 422),
        ({"$patch": "replace", "data": {"b": "Yg=="}}, 422),
        ({"metadata": {"$retainKeys": ["labels"]}}, 422),
        ({"metadata": {"$retainKeys": [], "labels": {"a": "b"}}}, 400),
        ({"$setElementOrder/data": []}, 422),
    ],
)
async def test_a_refused_strategic_patch_changes_nothing(
    served: Served, cluster: EmbeddedCluster, patch: Any, code: int
) -> None:
    made = b'{"metadata": {"name": "x"}, "data": {"a": "YQ=="}}'
    await call(served, "POST", SECRETS, made)
    before = await cluster.get(SECRET, "x", "default")

    status, answer = await call(served, "PATCH", f"{SECRETS}/x", json.dumps(patch).encode(), STRATEGIC)

    assert (status, answer["kind"]) == (code, "Status"), answer
    assert await cluster.get(SECRET, "x", "default") == before


OWNER = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "1"}


@pytest.mark.bad_input("manage-patches", "manage-bodies")
@pytest.mark.parametrize("way", ["create", "apply", "merge", "json", "strategic"])
@pytest.mark.parametrize(
    ("owner", "field"),
    [
        *(({name: value for name, value in OWNER.items() if name != left}, f".{left}") for left in OWNER),
        ({**OWNER, "apiVersion": "a/b/c"}, ".apiVersion"),
        ({**OWNER, "apiVersion": "a/"}, ".apiVersion"),
        ({**OWNER, "controller": "yes"}, ".controller"),
        ({**OWNER, "kind": "Event"}, ""),
    ],
)
async def test_an_owner_reference_that_kubernetes_refuses_is_refused_by_its_field(
    served: Served, cluster: EmbeddedCluster, owner: Any, field: str, way: str
) -> None:
    await call(served, "POST", SECRETS, b'{"metadata": {"name": "x"}}')
    wanted: Any = {"metadata": {"name": "y" if way == "create" else "x", "ownerReferences": [owner]}}
    if way == "json":
        wanted = [{"op": "add", "path": "/metadata/ownerReferences", "value": [owner]}]
    method, path = ("POST", SECRETS) if way == "create" else ("PATCH", f"{SECRETS}/x?fieldManager=test")
    headers = {"create": {}, "apply": APPLY, "merge": MERGE, "json": JSON_PATCH, "strategic": STRATEGIC}[way]

    status, answer = await call(served, method, path, json.dumps(wanted).encode(), headers)

    assert status == 422, answer
    assert [cause["field"] for cause in answer["details"]["causes"]] == [f"metadata.ownerReferences[0]{field}"]
