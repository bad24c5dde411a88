"""Validation of Models: all faults at once, each with the path of its field."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.schedules import Schedule
from autoscaler.types import AUTO
from clusters.base.errors import Invalid
from serving.types.model import Batching, Cause
from serving.types.reader import closest, short_repr
from serving.types.resources import Resources
from serving.types.validation import read_model, validate_model
from tests.manifests.bad_models import BAD_MODELS, BadModel
from tests.serving.models import VARIANTS, model_object

DIGEST = "sha256:" + "0f" * 32


def faults(name: str = "magika", **spec: Any) -> dict[str, str]:
    return faults_of(model_object(name, **spec))


def faults_of(given: Any) -> dict[str, str]:
    return {error.path: error.message for error in validate_model(None, given)}


def test_the_shortest_model_has_every_default() -> None:
    spec = read_model(model_object()).spec
    assert spec.resources == Resources("1", "1Gi")
    assert (spec.timeout, spec.startup_deadline, spec.container_concurrency) == (300.0, 600.0, 0)
    assert (spec.scaling.min_replicas, spec.scaling.max_replicas, spec.scaling.scale_target) == (0, 4, 4.0)
    assert (spec.scaling.target_utilization, spec.scaling.scale_to_zero_after) == (0.7, AUTO)
    assert (spec.scaling.latency_objective, spec.scaling.schedules) == (0.0, ())
    assert (spec.scaling.hold_queue, spec.visibility, spec.traffic, spec.variants) == (1000, "public", (), ())


@pytest.mark.parametrize("bad", BAD_MODELS, ids=str)
def test_a_bad_field_is_named_with_the_reason(bad: BadModel) -> None:
    assert faults_of(bad.object)[bad.path].startswith(bad.words)


def test_the_longest_model_is_taken() -> None:
    spec = read_model(
        model_object(
            storageUri="https://models.example.org:8443/m.onnx?sig=a%2Fb",
            digest=DIGEST,
            version="7 (retrained)",
            modelFormat="onnx",
            storage={"secretRef": {"name": "hub.keys"}},
            runtime={"name": "onnx-gpu"},
            batching={"maxBatchSize": 8, "maxLatency": "500us"},
            resources={"cpu": 2, "memory": "512Mi"},
            variants=VARIANTS,
            protocol="http1",
            containerConcurrency=8,
            timeout="1m30s",
            startupDeadline="20m",
            serviceAccountName="models",
            minReplicas=1,
            maxReplicas=10,
            scaleTarget=2.5,
            targetUtilization=1,
            scaleToZeroAfter="1h",
            holdQueue=5,
            visibility="cluster-local",
            traffic=[
                {"revision": "magika-a100-00001", "percent": 100, "tag": "blue"},
                {"latest": True, "tag": "green"},
            ],
            canaryTrafficPercent=0,
        )
    ).spec
    assert spec.variants[0].resources == Resources("2", "512Mi")
    assert spec.timeout == 90.0
    assert (spec.secret, spec.runtime, spec.batching) == ("hub.keys", "onnx-gpu", Batching(8, 0.0005))
    assert [entry.tag for entry in spec.traffic] == ["blue", "green"]


def test_all_faults_are_told_at_once() -> None:
    found = faults(minReplicas=-1, maxReplicas=1001, timeout="700s", digest="md5:1", minReplica=1)
    assert set(found) == {"spec.minReplicas", "spec.maxReplicas", "spec.timeout", "spec.digest", "spec.minReplica"}
    assert found["spec.minReplica"] == "unknown field; did you mean minReplicas?"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("protocol", "h2c"),
        ("template", {}),
    ],
)
def test_what_comes_later_is_refused_by_name(field: str, value: Any) -> None:
    assert faults(**{field: value})[f"spec.{field}"].startswith("not supported yet")


@pytest.mark.parametrize(
    "name",
    ["", "Magika", "1magika", "-a", "a-", "a.b", "a_b", "a" * 54, "stable-x", "candidate-x", "ａ", "../x", "a\n"],
)
def test_bad_names_are_refused(name: str) -> None:
    assert "metadata.name" in faults(name)


@pytest.mark.parametrize("name", ["a", "a" * 53, "stable", "stablex", "m-1"])
def test_good_names_are_taken(name: str) -> None:
    assert faults(name) == {}


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/models/m",
        "models/m",
        "file://models/m",
        "file:models/m",
        "file:///a/../b",
        "file:///a?b",
        "http://",
        "http:///path",
        "https://user:pw@host/m",
        "https://host/m#x",
        "https://host:99999/m",
        "https://host/a b",
        "ftp://host/m",
        "file:///a\nb",
        "http://[::1/m",
        "https://host/" + "a" * 3000,
        "file:///a\\b",
    ],
)
def test_bad_uris_are_refused(uri: str) -> None:
    assert "spec.storageUri" in faults(storageUri=uri)


@pytest.mark.parametrize("uri", ["file:///m", "file://localhost/m", "http://h/m", "https://[::1]:8/m", "HTTP://h/m"])
def test_good_uris_are_taken(uri: str) -> None:
    assert faults(storageUri=uri) == {}


@pytest.mark.parametrize("field", ["minReplicas", "maxReplicas", "holdQueue", "containerConcurrency"])
@pytest.mark.parametrize("value", [-1, 1.0, 1.5, math.nan, math.inf, "1", True, [], {}, 10**30])
def test_whole_numbers_are_whole_and_within_bounds(field: str, value: Any) -> None:
    assert f"spec.{field}" in faults(**{field: value})


@pytest.mark.parametrize("field", ["scaleTarget", "targetUtilization"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "1", True, 10**400])
def test_numbers_are_finite_and_within_bounds(field: str, value: Any) -> None:
    assert f"spec.{field}" in faults(**{field: value})


def test_more_replicas_at_least_than_at_most_are_refused() -> None:
    assert "maxReplicas (2)" in faults(minReplicas=3, maxReplicas=2)["spec.minReplicas"]


SCHEDULE = {"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "duration": "10h", "minReplicas": 9}


def test_a_minimum_above_the_default_maximum_lifts_it() -> None:
    assert read_model(model_object(minReplicas=9)).spec.scaling.max_replicas == 9
    assert read_model(model_object(schedules=[SCHEDULE])).spec.scaling.max_replicas == 9


def test_a_schedule_wants_no_more_than_there_may_be() -> None:
    assert "maxReplicas (8)" in faults(maxReplicas=8, schedules=[SCHEDULE])["spec.schedules[0].minReplicas"]


def test_scaling_by_the_clock_and_by_latency_is_read() -> None:
    spec = read_model(
        model_object(
            scaleToZeroAfter="auto", latencyObjective="1500us",
            schedules=[SCHEDULE, {"cron": "0 22 * * *", "duration": "90m", "minReplicas": 1}],
        )
    ).spec.scaling  # fmt: skip
    assert (spec.scale_to_zero_after, spec.latency_objective) == (AUTO, 0.0015)
    assert spec.schedules == (
        Schedule("0 8 * * 1-5", 36_000.0, 9, "Europe/Berlin"), Schedule("0 22 * * *", 5_400.0, 1, "UTC")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("cron", "0 8 * *", "five fields"),
        ("cron", "0 0 30 2 *", "bad day-of-month"),
        ("timeZone", "Europe/Berln", "did you mean Europe/Berlin?"),
        ("duration", "0s", "at least 1s and at most 604800s"),
        ("duration", "169h", "at least 1s and at most 604800s"),
        ("minReplicas", 0, "from 1 to 1000"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused_by_name(field: str, value: Any, said: str) -> None:
    assert said in faults(schedules=[SCHEDULE, {**SCHEDULE, field: value}])[f"spec.schedules[1].{field}"]


def test_more_than_sixteen_schedules_are_refused() -> None:
    assert "1 to 16 entries" in faults(schedules=[SCHEDULE] * 17)["spec.schedules"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timeout", "0s"),
        ("timeout", "1500ms"),
        ("timeout", 300),
        ("timeout", "300"),
        ("startupDeadline", "0.5s"),
        ("scaleToZeroAfter", "999ms"),
        ("scaleToZeroAfter", "200h"),
    ],
)
def test_durations_have_units_and_bounds(field: str, value: Any) -> None:
    assert f"spec.{field}" in faults(**{field: value})


@pytest.mark.parametrize("value", ["0", "-1", "1Q", True, [], math.nan])
def test_resources_are_quantities_above_zero(value: Any) -> None:
    assert "spec.resources.cpu" in faults(resources={"cpu": value})


def test_a_version_is_text_and_the_message_says_how_to_write_it() -> None:
    assert "version: '7'" in faults(version=7)["spec.version"]
    assert "spec.version" in faults(version="a\nb")


@pytest.mark.parametrize(
    ("traffic", "path"),
    [
        ([], "spec.traffic"),
        ({}, "spec.traffic"),
        ([1], "spec.traffic[0]"),
        ([{"latest": True, "percent": 90}], "spec.traffic"),
        ([{"latest": True, "percent": 101}], "spec.traffic[0].percent"),
        ([{"latest": True}], "spec.traffic[0].percent"),
        ([{"percent": 100}], "spec.traffic[0]"),
        ([{"latest": False, "percent": 100}], "spec.traffic[0]"),
        ([{"revision": "a-00001", "latest": True, "percent": 100}], "spec.traffic[0]"),
        ([{"revision": "A", "percent": 100}], "spec.traffic[0].revision"),
        ([{"latest": "yes", "percent": 100}], "spec.traffic[0].latest"),
        ([{"latest": True, "percent": 100, "tag": "Blue"}], "spec.traffic[0].tag"),
        ([{"latest": True, "percent": 100, "tag": "candidate"}], "spec.traffic[0].tag"),
        ([{"latest": True, "percent": 100, "tag": "b" * 60}], "spec.traffic[0].tag"),
        ([{"latest": True, "percent": 50, "tag": "b"}, {"revision": "a", "percent": 50, "tag": "b"}], "spec.traffic"),
        ([{"latest": True, "percent": 100, "weight": 1}], "spec.traffic[0].weight"),
    ],
)
def test_bad_traffic_is_refused_where_it_is_wrong(traffic: Any, path: str) -> None:
    assert path in faults(traffic=traffic)


@pytest.mark.parametrize(
    ("variants", "path"),
    [
        ([{"name": "a", "percent": 99}], "spec.variants"),
        ([{"name": "a", "percent": 50}, {"name": "a", "percent": 50}], "spec.variants"),
        ([{"percent": 100}], "spec.variants[0].name"),
        ([{"name": "a"}], "spec.variants[0].percent"),
        ([{"name": "a" * 50, "percent": 100}], "spec.variants[0].name"),
        ([{"name": "a", "percent": 100, "image": "x"}], "spec.variants[0].image"),
        ([{"name": "a", "percent": 100, "resources": {"cpu": "x"}}], "spec.variants[0].resources.cpu"),
    ],
)
def test_bad_variants_are_refused_where_they_are_wrong(variants: Any, path: str) -> None:
    assert path in faults(variants=variants)


def test_a_cause_is_read_and_a_scribble_refused() -> None:
    obj = model_object()
    obj["metadata"]["annotations"] = {"knodel.dev/cause": '{"by":"event","id":"1","source":"/t"}'}
    assert read_model(obj).cause == Cause("event", "1", "/t")
    for text in ("{", "[]", '"user"', '{"by":"me"}', '{"by":"user","x":"y"}', '{"by":"user","id":1}', "[" * 5000):
        obj["metadata"]["annotations"] = {"knodel.dev/cause": text}
        assert [error.path for error in validate_model(None, obj)] == ["metadata.annotations.knodel.dev/cause"]


def test_a_status_can_be_written_though_the_rules_became_stricter() -> None:
    old = model_object(batching={})
    assert validate_model(old, {**old, "status": {"url": "x"}}) == ()
    assert validate_model(old, model_object(batching={}, minReplicas=1)) != ()


def test_unknown_fields_on_top_and_wrong_kinds_are_refused() -> None:
    obj = {**model_object(), "data": 1, "kind": "Modell", "apiVersion": "v1"}
    assert {error.path for error in validate_model(None, obj)} == {"data", "kind", "apiVersion"}


@pytest.mark.parametrize("spec", [None, [], "x", 1])
def test_a_spec_that_is_no_mapping_is_refused(spec: Any) -> None:
    obj = {**model_object(), "spec": spec}
    assert [error.path for error in validate_model(None, obj)] == ["spec"]
    with pytest.raises(Invalid, match="spec"):
        read_model(obj)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "storageUri", "digest", "version", "modelFormat", "resources", "variants", "containerConcurrency", "timeout",
    "startupDeadline", "serviceAccountName", "minReplicas", "maxReplicas", "scaleTarget", "targetUtilization",
    "scaleToZeroAfter", "holdQueue", "latencyObjective", "schedules", "visibility", "traffic", "canaryTrafficPercent",
    "protocol", "rollout",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), JSON, max_size=4))
def test_no_spec_whatever_breaks_the_validation(spec: dict[str, Any]) -> None:
    obj = model_object()
    obj["spec"] |= spec
    errors = validate_model(None, obj)
    assert all("\n" not in str(error) for error in errors)
    assert all(error.path.startswith("spec") for error in errors)


@given(JSON)
def test_any_value_is_shown_on_one_short_line(value: Any) -> None:
    assert "\n" not in short_repr(value)
    assert len(short_repr(value)) < 100


def test_an_unknown_field_is_refused_in_a_change_too() -> None:
    old = model_object()
    assert [error.path for error in validate_model(old, old | {"specs": {}})] == ["specs"]
    assert list(validate_model(old, old | {"status": {"url": "x"}})) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [("storageURI", "storageUri"), ("STORAGEURI", "storageUri"), ("storage_uri", "storageUri"), ("stroage", "storage"),
     ("minreplicas", "minReplicas"), ("colour", "")],
)  # fmt: skip
def test_an_unknown_field_suggests_the_name_that_is_meant_whatever_its_case(name: str, meant: str) -> None:
    assert closest(name, ["storage", "storageUri", "minReplicas", "maxReplicas"]) == meant
