"""Test `knodel events` on a cluster: permissions of the webhook, and requests through the API server's proxy."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from clusters.base.names import dns_label_fault
from serving.cli.events.allow import role_name
from tests.serving.cli.conftest import Config, Knodel, check
from tests.serving.cli.kube import CONTEXT, FakeApi, Reply, Seen, failure

SOURCE = {
    "apiVersion": "knodel.dev/v1alpha1",
    "kind": "EventSource",
    "metadata": {"name": "train-magika", "namespace": "default", "uid": "u-1"},
    "spec": {
        "source": "/train/magika",
        "auth": {"hmac": {"secretRef": {"name": "train-magika-key"}}},
        "models": ["*"],
        "storagePrefixes": ["s3://models/"],
    },
}
KEY = b"k" * 32
SECRET = {
    "metadata": {"name": "train-magika-key"},
    "data": {"current": base64.b64encode(b"whsec_" + base64.b64encode(KEY)).decode()},
}
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
NAME = "knodel-eventing-train-magika"
PROXY = "/api/v1/namespaces/knodel-system/services/knodel-eventing:http/proxy/events"


def cluster(**answers: Reply) -> Any:
    """Return a script for a cluster with the EventSource; `answers`: responses to POSTs by the last part of a path."""

    def answer(seen: Seen) -> Reply:
        last = seen.path.rpartition("/")[2]
        if seen.path == "/apis":
            return Reply(200, {"groups": [{"name": "rbac.authorization.k8s.io"}]})
        if seen.method == "POST":
            return answers.get(last, Reply(201, seen.body))
        if last == "eventsources":
            return Reply(200, {"items": [SOURCE]})
        if last == "train-magika-key":
            return Reply(200, SECRET)
        return Reply(200, {"metadata": {"name": last}})

    return answer


def test_the_webhook_may_read_the_key_by_its_name_and_nothing_else(
    knodel: Knodel, api: FakeApi, config: Config
) -> None:
    api.script = cluster()
    done = knodel("events", "allow", "/train/magika", "--kube-context", CONTEXT)
    assert (done.code, done.err) == (0, "")
    role, binding = [seen.body for seen in api.seen if seen.method == "POST"]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["train-magika-key"], "verbs": ["get"]}
    ]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": name, "namespace": "knodel-system"}
        for name in ("knodel-eventing", "knodel-controller")
    ]
    assert (binding["roleRef"]["name"], binding["metadata"]["ownerReferences"][0]["uid"]) == (
        role["metadata"]["name"], "u-1",
    )  # fmt: skip


def test_rights_that_are_there_are_brought_up_to_date(knodel: Knodel, api: FakeApi, config: Config) -> None:
    there = failure(409, "AlreadyExists", "roles already exists")
    api.script = cluster(roles=there, rolebindings=there)
    assert knodel("events", "allow", "/train/magika", "--kube-context", CONTEXT).code == 0
    patched = {seen.path: seen.body for seen in api.seen if seen.method == "PATCH"}
    assert list(patched) == [f"{ROLES}/roles/{NAME}", f"{ROLES}/rolebindings/{NAME}"]
    assert "roleRef" not in patched[f"{ROLES}/rolebindings/{NAME}"]


def test_an_event_goes_through_the_api_server_and_is_signed(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = cluster(events=Reply(202, {}, headers={"Knodel-Event": "taken"}))
    done = knodel(
        "events", "send", "magika", "--uri", "s3://models/7", "--id", "42", "--kube-context", CONTEXT
    )  # fmt: skip
    assert done.out == "event 42 of /train/magika: taken\n", done.err
    sent = api.seen[-1]
    assert sent.path == PROXY
    body = json.dumps(sent.body, ensure_ascii=False).encode()
    content = f"{sent.headers['webhook-id']}.{sent.headers['webhook-timestamp']}.".encode() + body
    made = base64.b64encode(hmac.digest(KEY, content, hashlib.sha256)).decode()
    assert sent.headers["webhook-signature"] == f"v1,{made}"


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (failure(403, "Forbidden", 'services "knodel-eventing" is forbidden'), 1, ["is forbidden", "--url"]),
        (Reply(403, {"error": "see its `models`"}), 2, ["403", "see its `models`"]),
        (Reply(503, {"error": "cannot be kept now"}, headers={"Retry-After": "1"}), 1, ["cannot be kept", "in 1 s"]),
    ],
)
def test_a_refusal_names_the_component_that_refused(
    knodel: Knodel, api: FakeApi, config: Config, reply: Reply, code: int, words: list[str]
) -> None:
    api.script = cluster(events=reply)
    done = knodel("events", "send", "magika", "--uri", "s3://models/7", "--kube-context", CONTEXT)
    check(done, code, words)


def test_rights_that_go_with_another_event_source_stay(knodel: Knodel, api: FakeApi, config: Config) -> None:
    there = failure(409, "AlreadyExists", "roles already exists")
    owner = {"kind": "EventSource", "name": "train-other", "uid": "u-2"}
    answer = cluster(roles=there)

    def owned(seen: Seen) -> Reply:
        if seen.method == "GET" and seen.path == f"{ROLES}/roles/{NAME}":
            return Reply(200, {"metadata": {"name": NAME, "ownerReferences": [owner]}})
        return answer(seen)  # type: ignore[no-any-return]

    api.script = owned
    done = knodel("events", "allow", "/train/magika", "--kube-context", CONTEXT)
    assert done.code == 2 and "belongs to EventSource train-other" in done.err
    assert not [seen for seen in api.seen if seen.method == "PATCH"]


def test_event_sources_with_long_names_share_no_rights() -> None:
    long = "https-ci-example-org-teams-computer-vision-pipelines-"
    names = {role_name(long + end) for end in "ab"}
    assert len(names) == 2 and all(len(name) <= 63 and not dns_label_fault(name) for name in names)
    assert role_name("train-magika") == NAME
