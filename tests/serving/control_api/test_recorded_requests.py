"""Requests exactly as kubectl 1.32 and 1.35 send them, for machines without kubectl."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from clusters.base.objects import CONFIG_MAP, MODEL, NAMESPACE, SECRET
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.secrets import values_of
from tests.scenarios.world import model
from tests.serving.control_api.conftest import TOKEN, Served
from tests.serving.control_api.test_resources import AUTHORIZED, MODELS, PROTOBUF, STRATEGIC, call

CREATE = "?fieldManager=kubectl-create&fieldValidation=Strict"
ACCEPT = {"Accept": "application/vnd.kubernetes.protobuf,application/json"}
CREATE_NAMESPACE = (
    b'k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\x1e\n\x16\n\x06team-a\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00\x12\x00'
    b'\x1a\x02\n\x00\x1a\x00"\x00'
)
CREATE_SECRET = (
    b'k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x123\n\x1b\n\x04keys\x12\x00\x1a\x07default"\x00*\x002\x008\x00B\x00'
    b'\x12\x12\n\x08HF_TOKEN\x12\x06s3cret\x1a\x00\x1a\x00"\x00'
)
CREATE_TYPED_SECRET = (
    b'k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12G\n\x1c\n\x05typed\x12\x00\x1a\x07default"\x00*\x002\x008\x00B\x00\x12\r'
    b'\n\x08username\x12\x01u\x1a\x18kubernetes.io/basic-auth\x1a\x00"\x00'
)
CREATE_CONFIG_MAP = (
    b'k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12$\n\x1a\n\x03cfg\x12\x00\x1a\x07default"\x00*\x002\x008\x00B\x00\x12\x06'
    b'\n\x01a\x12\x01b\x1a\x00"\x00'
)
CAN_CREATE_MODELS = (
    b'k8s\x00\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12K\n\x10\n\x00\x12\x00\x1a\x00"\x00*\x002'
    b'\x008\x00B\x00\x12-\n+\n\x07default\x12\x06create\x1a\nknodel.dev"\x00*\x06models2\x00:\x00\x1a\x08\x08\x00\x12\x00'
    b'\x1a\x00 \x00\x1a\x00"\x00'
)
STREAMED = (
    "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=20&watch=true"
)


async def test_core_objects_are_created_from_protobuf(served: Served, cluster: EmbeddedCluster) -> None:
    for path, body in (
        ("namespaces", CREATE_NAMESPACE),
        ("namespaces/default/secrets", CREATE_SECRET),
        ("namespaces/default/secrets", CREATE_TYPED_SECRET),
        ("namespaces/default/configmaps", CREATE_CONFIG_MAP),
    ):
        status, answer = await call(served, "POST", f"/api/v1/{path}{CREATE}", body, PROTOBUF | ACCEPT)
        assert status == 201, answer

    assert (await cluster.get(NAMESPACE, "team-a"))["status"] == {"phase": "Active"}
    secret = await cluster.get(SECRET, "keys", "default")
    assert values_of(secret) == {"HF_TOKEN": b"s3cret"}
    assert "type" not in secret
    assert secret["metadata"]["managedFields"][0]["manager"] == "kubectl-create"
    assert (await cluster.get(SECRET, "typed", "default"))["type"] == "kubernetes.io/basic-auth"
    assert (await cluster.get(CONFIG_MAP, "cfg", "default"))["data"] == {"a": "b"}


async def test_a_deletion_takes_its_preconditions_from_protobuf(served: Served, cluster: EmbeddedCluster) -> None:
    await cluster.create(MODEL, model("a"), manager="test")
    # DeleteOptions{preconditions: {uid: "other"}} of v1
    body = b'k8s\x00\n\x13\n\x02v1\x12\rDeleteOptions\x12\x09\x12\x07\n\x05other\x1a\x00"\x00'
    assert (await call(served, "DELETE", f"{MODELS}/a", body, PROTOBUF))[0] == 409
    assert (await call(served, "GET", f"{MODELS}/a"))[0] == 200


async def test_a_streamed_list_ends_with_its_bookmark(served: Served, cluster: EmbeddedCluster) -> None:
    await cluster.create(MODEL, model("a"), manager="test")
    events: list[Any] = []
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
        session.get(f"http://127.0.0.1:{served.port}{MODELS}?{STREAMED}", headers=AUTHORIZED) as answer,
    ):
        events += [json.loads(await answer.content.readline()) for _ in range(2)]
        await cluster.create(MODEL, model("b"), manager="test")
        events.append(json.loads(await answer.content.readline()))

    added, bookmark, later = events
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["metadata"]["resourceVersion"] == added["object"]["metadata"]["resourceVersion"]
    assert (later["type"], later["object"]["metadata"]["name"]) == ("ADDED", "b")


async def test_a_strategic_merge_patch_merges_what_others_wrote(served: Served, cluster: EmbeddedCluster) -> None:
    secret = {"metadata": {"name": "keys", "namespace": "default", "finalizers": ["a/b"]}, "data": {"a": "MQ=="}}
    await cluster.create(SECRET, secret, manager="test")
    path = "/api/v1/namespaces/default/secrets/keys"
    patch = {"metadata": {"finalizers": ["c/d"], "labels": {"x": "y"}}, "data": {"a": None, "b": "Mg=="}}

    status, answer = await call(served, "PATCH", path, json.dumps(patch).encode(), STRATEGIC)
    assert (status, answer["data"]) == (200, {"b": "Mg=="})
    assert answer["metadata"]["finalizers"] == ["c/d", "a/b"]
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"c": "Mw=="}}
    assert (await call(served, "PATCH", path, json.dumps(stale).encode(), STRATEGIC))[0] == 409
    status, _ = await call(served, "PATCH", f"{path}?dryRun=All", b'{"data": {"c": "Mw=="}}', STRATEGIC)
    assert status == 200
    assert values_of(await cluster.get(SECRET, "keys", "default")) == {"b": b"2"}


async def test_an_update_replaces_all_but_status_and_what_the_server_writes(
    served: Served, cluster: EmbeddedCluster
) -> None:
    made = await cluster.create(MODEL, model("a", version="1"), manager="test")
    await cluster.patch(MODEL, "a", {"status": {"url": "http://a"}}, "default", manager="test", subresource="status")
    obj = await cluster.get(MODEL, "a", "default")
    body = {
        **obj,
        "spec": {"storageUri": "file:///n"},
        "status": {},
        "metadata": {**obj["metadata"], "uid": made["metadata"]["uid"]},
    }

    status, answer = await call(served, "PUT", f"{MODELS}/a", json.dumps(body).encode())
    assert status == 200, answer
    assert (answer["spec"], answer["status"]) == ({"storageUri": "file:///n"}, {"url": "http://a"})
    assert answer["metadata"]["generation"] == 2
    assert answer["metadata"]["creationTimestamp"] == obj["metadata"]["creationTimestamp"]
    status, answer = await call(served, "PUT", f"{MODELS}/a", json.dumps(body).encode())
    assert (status, answer["reason"]) == (409, "Conflict")
    del body["metadata"]["resourceVersion"]
    assert (await call(served, "PUT", f"{MODELS}/a", json.dumps(body).encode()))[0] == 422


async def test_a_replaced_namespace_goes_only_after_its_contents(served: Served, cluster: EmbeddedCluster) -> None:
    await cluster.create(SECRET, {"metadata": {"name": "s", "namespace": "team-a"}}, manager="test")
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    assert (await call(served, "PUT", "/api/v1/namespaces/team-a", json.dumps(manifest).encode()))[0] == 200
    assert (await cluster.get(NAMESPACE, "team-a"))["metadata"]["finalizers"]
    nothing = json.dumps({"metadata": {"finalizers": None}}).encode()
    merge = {"Content-Type": "application/merge-patch+json"}
    assert (await call(served, "PATCH", "/api/v1/namespaces/team-a", nothing, merge))[0] == 200
    assert (await cluster.get(NAMESPACE, "team-a"))["metadata"]["finalizers"]


async def test_a_review_of_rights_is_answered_and_not_stored(served: Served) -> None:
    for body, allowed in ((CAN_CREATE_MODELS, True), (CAN_CREATE_MODELS.replace(b"models", b"things"), False)):
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status, answer = await call(served, "POST", path, body, PROTOBUF | ACCEPT)
        assert (status, answer["kind"], answer["status"]["allowed"]) == (201, "SelfSubjectAccessReview", allowed)
        assert (await call(served, "GET", path))[0] == 404


@pytest.mark.parametrize("path", ["/version", "/api/v1", "/apis/knodel.dev/v1alpha1"])
async def test_discovery_has_what_kubectl_shows(served: Served, path: str) -> None:
    status, answer = await call(served, "GET", path)
    assert status == 200
    if path == "/version":
        fields = {
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        }
        assert set(answer) == fields
        assert all(isinstance(value, str) for value in answer.values())
        return
    resources = {one["name"]: one for one in answer["resources"]}
    for name in ("models", "models/status") if "knodel" in path else ("secrets", "pods/log", "configmaps"):
        assert name in resources
    if "knodel" in path:
        assert resources["models"]["categories"] == ["all", "knodel"]
        assert resources["models"]["verbs"] == ["create", "delete", "get", "list", "patch", "update", "watch"]
