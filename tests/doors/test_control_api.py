"""The control API, by a caller who knows the token: a Status that names the cause, at once, and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import pytest

from clusters.base.patches import LARGEST_COPIES
from clusters.base.sizes import format_size
from tests.doors.inputs import NO_JSON_TYPES, NO_OBJECTS, nested
from tests.doors.platform import HOST, TOKEN, Doors, status_of
from tests.golden.bad_objects import BAD
from tests.manifests.bad_models import BAD_MODELS
from tests.serving.models import model_object
from tests.serving.modelserver.client import Answer
from tests.support.http2 import post, rapid_reset

OURS = "/apis/knodel.dev/v1alpha1/namespaces/default"
MODELS = f"{OURS}/models"
GOOD = f"{MODELS}/good"
COLLECTIONS = (
    MODELS, f"{OURS}/warmpools", f"{OURS}/eventsources", f"{OURS}/modelevents", "/api/v1/namespaces",
    "/api/v1/namespaces/default/secrets",
)  # fmt: skip
APPLY = {"content_type": "application/apply-patch+yaml"}
MERGE = {"content_type": "application/merge-patch+json"}
JSON_PATCH = {"content_type": "application/json-patch+json"}
AT_ONCE = 2.0  # s; what took tens of seconds, or all memory, is answered in milliseconds now
LONGEST_MESSAGE = 4000  # characters: of a hundred faults all are told


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


@asynccontextmanager
async def unchanged(doors: Doors, caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Everything is after it as before, one Model included, and the platform has no fault of its own to tell of."""
    answer = await doors.send("POST", MODELS, as_json(model_object("good")))
    assert answer.status == 201, answer.body
    before = await doors.everything()
    yield
    assert await doors.everything() == before
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


def refused(answer: Answer, *codes: int) -> str:
    """Its Status says why on one line, without a word about this machine; the message."""
    status = status_of(answer)
    assert (answer.status, status["code"]) == (status["code"], answer.status)
    assert answer.status in codes, status
    message = status["message"]
    assert isinstance(message, str) and 0 < len(message) <= LONGEST_MESSAGE and "\n" not in message
    assert not any(word in message for word in ("Traceback", "site-packages", ".py", TOKEN)), message
    return message


@pytest.mark.bad_input("manage-bodies")
async def test_a_body_that_parsers_disagree_about_is_refused_by_every_verb(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(doors, caplog):
        for name, body in NO_OBJECTS.items():
            for collection in COLLECTIONS:
                refused(await doors.send("POST", collection, body), 400)
            for headers in (MERGE, JSON_PATCH):
                assert refused(await doors.send("PATCH", GOOD, body, headers), 400), name
            if name != "a byte order mark":  # in YAML it may be there
                refused(await doors.send("PATCH", f"{GOOD}?fieldManager=t", body, APPLY), 400, 409, 422)
            refused(await doors.send("DELETE", GOOD, body), 400)


@pytest.mark.bad_input("manage-bodies")
async def test_other_types_codings_and_charsets_are_415(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(doors, caplog):
        for content_type in NO_JSON_TYPES:
            refused(await doors.send("POST", MODELS, b"{}", {"content_type": content_type}), 415)
            refused(await doors.send("PATCH", GOOD, b"{}", {"content_type": content_type}), 415)
        model = as_json(model_object("other"))
        refused(await doors.send("POST", MODELS, model, {"content_encoding": "gzip"}), 415)


@pytest.mark.bad_input("manage-bodies")
async def test_a_body_without_end_costs_no_time(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    lists = b'{"metadata": {"name": "x"}, "spec": [' + b"1," * 1_400_000 + b"1]}"
    aliases = b"\n".join(
        [b"a0: &a0 [x]", *(b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10))]
    )
    applied = f"{GOOD}?fieldManager=t"
    async with unchanged(doors, caplog):
        begun = perf_counter()
        refused(await doors.send("POST", MODELS, lists), 413)
        for body in (b"a: [" + b"1," * 1_400_000 + b"1]", b"[" * 3_000_000, b"a: " * 1_000_000):
            refused(await doors.send("PATCH", applied, body, APPLY), 413)
        for body in (aliases, b"a: &a [*a]", b"spec: !!python/object/apply:os.system ['id']", b"a: 1\na: 2"):
            refused(await doors.send("PATCH", applied, body, APPLY), 400)
        assert perf_counter() - begun < AT_ONCE


BAD_PATCHES: Mapping[str, list[Any]] = {
    "no operation": [{"op": "x", "path": "/a"}],
    "numbers": [1, 2],
    "a path that is none": [{"op": "add", "path": 5, "value": 1}],
    "a place that is not there": [{"op": "remove", "path": "/spec/nothing"}],
    "nothing is left": [{"op": "replace", "path": "", "value": {}}],
    "a list is left": [{"op": "replace", "path": "", "value": []}],
    "no metadata": [{"op": "remove", "path": "/metadata"}],
    "too many": [{"op": "test", "path": "/kind", "value": "Model"}] * 20_000,
    "copies that double": [{"op": "add", "path": "/spec/a", "value": {"text": "x" * 1000}}]
    + [{"op": "copy", "from": "/spec", "path": f"/spec/a/{number}"} for number in range(60)],
    "copies into one another": [
        {"op": "copy", "from": "/spec", "path": "/spec" + "/a" * level} for level in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    ],
    "another's name": [{"op": "replace", "path": "/metadata/name", "value": "other"}],
    "another's uid": [{"op": "replace", "path": "/metadata/uid", "value": "other"}],
    "another kind": [{"op": "replace", "path": "/kind", "value": "Pod"}],
}


@pytest.mark.bad_input("manage-patches")
async def test_a_patch_that_is_none_or_grows_without_end_is_refused(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(doors, caplog):
        for operations in BAD_PATCHES.values():
            begun = perf_counter()
            refused(await doors.send("PATCH", GOOD, as_json(operations), JSON_PATCH), 409, 422)
            assert perf_counter() - begun < AT_ONCE
        copies = BAD_PATCHES["copies that double"]
        assert format_size(LARGEST_COPIES) in refused(await doors.send("PATCH", GOOD, as_json(copies), JSON_PATCH), 422)
        for merged in (
            {"metadata": None}, {"spec": None}, {"metadata": {"name": "other"}}, {"kind": "Pod"},
            {"metadata": {"x": 1}}, {"metadata": {"annotations": {"a": "x" * 300_000}}},
            {"metadata": {"labels": {"a": "b c"}}},
        ):  # fmt: skip
            refused(await doors.send("PATCH", GOOD, as_json(merged), MERGE), 422)


QUERIES = (
    "labelSelector=" + "a," * 12_000, "labelSelector=a+in+(" + "b," * 12_000, "labelSelector=" + "(" * 12_000,
    "labelSelector=%00", "labelSelector=a%20in%20(b", "fieldSelector=spec.x%3D1", "fieldSelector=metadata.name",
    "watch=1&resourceVersion=abc", "watch=1&resourceVersion=-1", "watch=1&resourceVersion=" + "9" * 5000,
    "watch=1&resourceVersion=%C2%B2", "watch=1&timeoutSeconds=-1", "watch=1&timeoutSeconds=%C2%B2",
    "watch=1&timeoutSeconds=" + "9" * 5000, "watch=yes", "watch=1&allowWatchBookmarks=yes",
    "resourceVersion=abc", "resourceVersion=-1", "resourceVersion=" + "9" * 5000, "limit=-1", "limit=ten",
    "limit=%C2%B2", "limit=" + "9" * 5000, "continue=zzz",
)  # fmt: skip


@pytest.mark.bad_input("manage-queries")
async def test_a_query_that_is_none_is_refused_at_once(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(doors, caplog):
        for query in QUERIES:
            begun = perf_counter()
            refused(await doors.send("GET", f"{MODELS}?{query}"), 400, 422)
            assert perf_counter() - begun < AT_ONCE, query[:80]
        for query in ("dryRun=all", "dryRun=All&dryRun=no", "fieldManager=" + "x" * 129, "fieldManager=a%0Ab"):
            refused(await doors.send("POST", f"{MODELS}?{query}", as_json(model_object("other"))), 400, 422)


NAMES = (
    "..",
    "%2e%2e",
    "..%2f..%2fgood",
    "%00",
    "good%00",
    "%ff",
    "x" * 3000,
    "good%0d%0aX:1",
    "g%C3%B6od",
    "GOOD",
    "g ood",
)


@pytest.mark.bad_input("manage-names")
async def test_a_name_leads_nowhere_else(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(doors, caplog):
        for name in NAMES:
            if " " not in name:
                for method, body, headers in (("GET", b"", {}), ("DELETE", b"", {}), ("PATCH", b"{}", MERGE)):
                    refused(await doors.send(method, f"{MODELS}/{name}", body, headers), 404)
                spaced = f"/apis/knodel.dev/v1alpha1/namespaces/{name}/models"
                refused(await doors.send("POST", spaced, as_json(model_object("other"))), 400, 404, 422)
            said = model_object("other")
            said["metadata"] = {"name": name}
            refused(await doors.send("POST", MODELS, as_json(said)), 422)


@pytest.mark.bad_input("object-model")
async def test_every_bad_model_is_refused_by_its_field_by_every_verb(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(doors, caplog):
        for bad in BAD_MODELS:
            if not _is_json(bad.object):
                continue
            for method, path, headers in (
                ("POST", MODELS, {}),
                ("PATCH", f"{MODELS}/{bad.object['metadata']['name']}?fieldManager=t", APPLY),
            ):
                if method == "PATCH" and bad.path == "metadata.name":
                    continue
                answer = await doors.send(method, path, as_json(bad.object), headers)
                message = refused(answer, 422)
                assert bad.path in message, bad
                causes = status_of(answer)["details"]["causes"]
                assert any(cause["field"].startswith(bad.path.partition("[")[0]) for cause in causes), bad


BAD_METADATA: Mapping[str, tuple[Any, str]] = {
    "an annotation of 1 MB": ({"annotations": {"a": "x" * 1_000_000}}, "metadata.annotations"),
    "an annotation that is no text": ({"annotations": {"a": True}}, "metadata.annotations[a]"),
    "a label that is none": ({"labels": {"a": "b\nc"}}, "metadata.labels[a]"),
    "a label's name that is none": ({"labels": {"../a": "b"}}, "metadata.labels"),
    "an unknown field": ({"zones": ["a"]}, "metadata.zones"),
    "finalizers that are none": ({"finalizers": ["a b"]}, "metadata.finalizers[0]"),
    "an owner that is none": ({"ownerReferences": [{"name": "x"}]}, "metadata.ownerReferences[0].uid"),
    "two controllers": (
        {"ownerReferences": [
            {"apiVersion": "v1", "kind": "A", "name": "a", "uid": uid, "controller": True} for uid in ("1", "2")
        ]},
        "metadata.ownerReferences",
    ),
    "a version": ({"resourceVersion": "5"}, "metadata.resourceVersion"),
}  # fmt: skip


@pytest.mark.bad_input("object-metadata")
async def test_metadata_that_are_none_are_refused_by_their_field(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(doors, caplog):
        for fields, path in BAD_METADATA.values():
            said = model_object("other")
            said["metadata"] = {"name": "other", **fields}
            assert path in refused(await doors.send("POST", MODELS, as_json(said)), 422)


BAD_OTHERS: tuple[tuple[str, Any, str], ...] = (
    (f"{OURS}/warmpools", {"spec": {"size": -1}}, "spec.size"),
    (f"{OURS}/warmpools", {"spec": {"size": 1, "sise": 2}}, "spec.sise"),
    (f"{OURS}/eventsources", {"spec": {}}, "spec.source"),
    (f"{OURS}/eventsources", {"spec": {"source": "a b", "auth": {}}}, "spec.auth"),
    (f"{OURS}/modelevents", {"spec": {}}, "spec"),
    (f"{OURS}/modelevents", {"spec": {"eventSource": 1}}, "spec"),
    ("/api/v1/namespaces/default/secrets", {"data": {"../../etc/passwd": "eA=="}}, "data"),
    ("/api/v1/namespaces/default/secrets", {"data": {"a": "no base64"}}, "data[a]"),
    ("/api/v1/namespaces/default/secrets", {"stringData": {"a": "x" * 1_100_000}}, "data"),
    ("/api/v1/namespaces", {"metadata": {"name": "A/B"}}, "metadata.name"),
)


@pytest.mark.bad_input("object-others")
async def test_other_kinds_are_refused_by_their_field(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(doors, caplog):
        for path, fields, field in BAD_OTHERS:
            said = {"metadata": {"name": "other"}, **fields}
            assert field in refused(await doors.send("POST", path, as_json(said)), 422)


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
STRANGERS: Mapping[str, tuple[Mapping[str, str], int]] = {
    "no token": ({"authorization": ""}, 401),
    "another token": ({"authorization": "Bearer other"}, 401),
    "the token as a password": ({"authorization": "Basic dDBrZW4="}, 401),
    "half of the token": ({"authorization": f"Bearer {TOKEN[:3]}"}, 401),
    "a page of elsewhere": ({"origin": "https://evil.example"}, 403),
    "a page of nowhere": ({"origin": "null"}, 403),
    "a name that leads here": ({"host": "evil.example"}, 403),
    "a name that begins as ours": ({"host": "127.0.0.1.evil.example"}, 403),
}


@pytest.mark.bad_input("manage-stranger", "manage-browser")
async def test_a_stranger_and_a_page_learn_and_change_nothing_by_any_verb(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(doors, caplog):
        for headers, code in STRANGERS.values():
            for method in METHODS:
                for path in (MODELS, GOOD, "/", "/apis", "/openapi/v3", "/nowhere", f"{GOOD}/status", "/version"):
                    body = as_json(model_object("other")) if method in ("POST", "PATCH", "PUT") else b""
                    answer = await doors.send(method, path, body, {"content_type": MERGE["content_type"], **headers})
                    assert answer.status == code, (method, path, headers)
                    assert "good" not in refused(answer, code)


@pytest.mark.bad_input("manage-bodies")
async def test_a_stranger_is_refused_before_a_body_is_read(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(doors, caplog):
        for body in (nested(100_000), b"x" * 1_000_000):
            refused(await doors.send("POST", MODELS, body, {"authorization": ""}), 401)


@pytest.mark.bad_input("framing-http2")
async def test_streams_that_are_reset_by_the_thousand_end_the_connection(doors: Doors) -> None:
    for path in ("/apis", "/events"):
        talk = await rapid_reset((HOST, doors.port), post(HOST, path, "application/json"), b"{}", 10_000)
        assert talk.ended and not talk.answers
        assert (await doors.send("GET", "/apis")).status == 200


def _is_json(value: object) -> bool:
    try:
        return json.loads(json.dumps(value, allow_nan=False)) == value and not _has_big_integer(value)
    except ValueError:
        return False


def _has_big_integer(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_big_integer, value.values()))
    if isinstance(value, list):
        return any(map(_has_big_integer, value))
    return isinstance(value, int) and value >= 2**64


@pytest.mark.bad_input("object-knative")
async def test_objects_of_knative_are_refused(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(doors, caplog):
        for example in BAD:
            collection = f"/apis/serving.knative.dev/v1/namespaces/default/{example.kind.plural}"
            for method, path, headers in (
                ("POST", collection, {}),
                ("PUT", f"{collection}/x", {}),
                ("PATCH", f"{collection}/x?fieldManager=t&force=true", APPLY),
                ("PATCH", f"{collection}/x", MERGE),
            ):
                answer = await doors.send(method, path, as_json(example.object), headers)
                assert "written by the platform only" in refused(answer, 405), example.name
