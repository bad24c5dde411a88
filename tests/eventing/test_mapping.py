"""Mappings of foreign events to changes; faults of a mapping are found before an event arrives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.base.errors import Invalid
from clusters.net.cloudevents import BadEvent, Event
from eventing.mapping.event_source import read_event_source
from eventing.mapping.mapping import compile_mapping, document_of, mapping_faults
from eventing.mapping.training import TYPE, EventMapper
from eventing.objects.ports import ModelChange, ModelRef
from serving.types.event_source import validate_event_source
from tests.eventing.webhook import event, event_source

OWN = {"model": "$.data.name | label", "storageUri": "s3://models/{$.data.name}/{$.data.version}/"}
DATA = {"name": "Iris", "version": 7, "stage": "production", "at": "2026-01-01T12:00:00+01:00", "run": "r-1"}


def sent(data: Any = None, **attributes: Any) -> Event:
    """Return a foreign event."""
    known = {"id": "e-1", "source": "/ci", "type": "org.example.model.stored", "data": DATA if data is None else data}
    return Event(**{**known, **attributes})


def test_templates_make_the_change() -> None:
    mapping = {**OWN, "version": ["$.data.tag", "$.data.version"], "id": "run-{$.data.run}", "time": "$.data.at"}
    found = compile_mapping(mapping).map(sent(), "ml")
    assert found.model == ModelRef("ml", "iris")
    assert found.change == ModelChange("s3://models/Iris/7/", version="7")
    assert (found.id, found.source) == ("run-r-1", "/ci")
    assert found.time == datetime(2026, 1, 1, 11, tzinfo=UTC)


@pytest.mark.parametrize("name", ["version", "modelFormat", "storageUri"])
@pytest.mark.parametrize("control", ["\n", "\x1b", "\x00", "\x9b"])
def test_control_characters_of_a_foreign_event_go_no_further(name: str, control: str) -> None:
    mapping = compile_mapping({"model": "iris", "storageUri": "s3://models/1/", name: "s3://{$.data.said}"})
    with pytest.raises(BadEvent, match=r"the mapped event: .* control characters"):
        mapping.map(sent({"said": f"onnx{control}"}), "ml")


def test_id_and_time_are_those_of_the_event_unless_the_mapping_says_otherwise() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found = compile_mapping(OWN).map(sent(time=at), "ml")
    assert (found.id, found.time) == ("e-1", at)


def test_attributes_and_extensions_of_the_event_are_to_be_had() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    document = document_of(sent(extensions={"kind": "Job"}, time=at, subject="iris"))
    assert {name: document[name] for name in ("type", "subject", "kind", "time")} == {
        "type": "org.example.model.stored",
        "subject": "iris",
        "kind": "Job",
        "time": "2026-01-01T00:00:00+00:00",
    }
    assert "time" not in document_of(sent())
    assert document_of(sent(data=b"\x00"))["data"] is None


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({"types": ["org.example.model.deleted"]}, "no mapping rule matches event type 'org.example.model.stored'"),
        ({"when": ["$[?@.stage == 'x']"]}, "$[?@.stage == 'x'] selects nothing"),
        ({"when": [{"path": "$[?@.stage == 'x']", "otherwise": "it is a draft"}]}, "it is a draft"),
        ({"when": ["$[?@.stage == 'production']", "$.data.missing"]}, "$.data.missing selects nothing"),
        ({"model": "$.data.missing"}, "it has no model"),
        ({"storageUri": "s3://{$.data.missing}"}, "it has no storageUri"),
        ({"storageUri": "$.data"}, "it has no storageUri"),
    ],
)
def test_an_event_that_the_mapping_does_not_speak_of_is_ignored_with_the_reason(
    mapping: dict[str, Any], reason: str
) -> None:
    found = compile_mapping({**OWN, **mapping}).map(sent(), "ml")
    assert (found.model, found.change, found.ignored) == (None, None, reason)


def test_types_are_globs() -> None:
    assert not compile_mapping({**OWN, "types": ["org.example.model.*"]}).map(sent(), "ml").ignored


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"model": "Iris"}, "model"),
        ({"model": "$.data.at"}, "model"),
        ({"namespace": "$.data.name"}, "namespace"),
        ({"digest": "$.data.run"}, "digest"),
        ({"time": "$.data.run"}, "time 'r-1' is not an RFC 3339 time"),
        ({"time": "$.data.version"}, "time '7' is not an RFC 3339 time"),
        ({"id": "$.data.missing"}, "invalid id"),
        ({"metrics": "$.data.name"}, "not JSON"),
        ({"metrics": "$.data.version"}, "metrics"),
    ],
)
def test_a_value_that_is_none_is_refused_as_ours_would_be(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(BadEvent, match=message) as caught:
        compile_mapping({**OWN, **mapping}).map(sent(), "ml")
    assert caught.value.status == 400


def test_an_id_of_a_foreign_event_is_one_line_of_bounded_length() -> None:
    compiled = compile_mapping({**OWN, "id": "$.data.run"})
    for run in ("a\r\nb", "x" * 5000):
        with pytest.raises(BadEvent, match="invalid id"):
            compiled.map(sent({**DATA, "run": run}), "ml")


def test_metrics_are_an_object_or_a_text_that_is_one() -> None:
    compiled = compile_mapping({**OWN, "metrics": "$.data.metrics"})
    for metrics in ({"accuracy": 0.9}, '{"accuracy": 0.9}'):
        assert compiled.map(sent({**DATA, "metrics": metrics}), "ml").metrics == {"accuracy": 0.9}


def test_no_event_is_ignored_under_the_id_of_an_effect() -> None:
    compiled = compile_mapping({**OWN, "id": "$.data.run", "when": ["$[?@.stage == 'production']"]})
    draft = compiled.map(sent({**DATA, "stage": "draft"}), "ml")
    assert draft.ignored
    assert draft.id != compiled.map(sent(), "ml").id


def test_ones_own_fields_replace_those_of_a_preset_and_conditions_are_added() -> None:
    mapping = {"preset": "cdevents", "model": "iris", "storageUri": "s3://models/iris/", "when": ["$.data.ok"]}
    compiled = compile_mapping(mapping)
    published = "dev.cdevents.artifact.published.0.2.0"
    assert compiled.map(sent({"ok": True}, type=published), "ml").change == ModelChange("s3://models/iris/")
    assert compiled.map(sent({}, type=published), "ml").ignored == "$.data.ok selects nothing"
    assert compiled.preset == "cdevents"


@pytest.mark.parametrize(
    ("mapping", "path", "message"),
    [
        ({}, "spec.mapping.model", "required"),
        ({"model": "iris"}, "spec.mapping.storageUri", "required"),
        ({"preset": "jobs"}, "spec.mapping", "unknown preset 'jobs': use one of job, mlflow, cdevents"),
        ({**OWN, "storageURI": "x"}, "spec.mapping", "unknown field `storageURI`"),
        ({**OWN, "model": 7}, "spec.mapping", r"\$.model"),
        ({**OWN, "when": [{"otherwise": "x"}]}, "spec.mapping", "path"),
        ({**OWN, "model": "$.data["}, "spec.mapping.model", "not a JSONPath"),
        ({**OWN, "model": "$..name"}, "spec.mapping.model", "descendants"),
        ({**OWN, "when": ["data.name"]}, "spec.mapping.when", "not a JSONPath"),
        ({**OWN, "when": ["$.data[?match(@.a, '(a+)+')]"]}, "spec.mapping.when", "match"),
        ({**OWN, "when": ["$.data[?$.data[?@.a]]"]}, "spec.mapping.when", "within a filter"),
        ({**OWN, "when": ["$.data"] * 17}, "spec.mapping.when", "at most 16"),
        ({**OWN, "types": ["a"] * 17}, "spec.mapping.types", "at most 16"),
        ({**OWN, "version": ["a"] * 17}, "spec.mapping.version", "at most 16"),
        ({**OWN, "version": [""]}, "spec.mapping.version", "1 to 2048"),
        ({**OWN, "version": "v{$.data.version"}, "spec.mapping.version", "without a closing"),
        ({**OWN, "version": "$.data.name | upper"}, "spec.mapping.version", "unknown transform 'upper': use one of"),
        ({**OWN, "source": "/ci/{$.data.name}"}, "spec.mapping.source", "constant text"),
        ({**OWN, "source": "$.source"}, "spec.mapping.source", "constant text"),
        ({**OWN, "source": "a b"}, "spec.mapping.source", "not a URI reference"),
    ],
)
def test_every_fault_of_a_mapping_is_named(mapping: dict[str, Any], path: str, message: str) -> None:
    faults = mapping_faults(mapping)
    assert path in {fault.path for fault in faults}
    with pytest.raises(Invalid, match=message):
        compile_mapping(mapping)


def test_several_faults_are_told_at_once() -> None:
    faults = mapping_faults({"model": "$..a", "storageUri": "$..b", "when": ["c"]})
    assert [fault.path for fault in faults] == ["spec.mapping.model", "spec.mapping.storageUri", "spec.mapping.when"]


def test_a_mapping_without_fault_has_none() -> None:
    assert list(mapping_faults(OWN)) == []


def test_an_event_source_has_its_mapping_compiled_or_lets_nobody_in() -> None:
    spec = {
        "source": "/ci",
        "auth": {"hmac": {"secretRef": {"name": "key"}}},
        "models": ["*"],
        "storagePrefixes": ["s3://models/"],
    }
    obj = {"metadata": {"name": "ci", "namespace": "ml"}, "spec": {**spec, "mapping": OWN}}
    read = read_event_source(obj)
    assert read.mapping is not None
    assert read.mapping.map(sent(), "ml").model == ModelRef("ml", "iris")
    with pytest.raises(Invalid, match=r"EventSource 'ml/ci': spec\.mapping\.model: "):
        read_event_source({**obj, "spec": {**spec, "mapping": {**OWN, "model": "$..a"}}})
    assert read_event_source({**obj, "spec": spec}).mapping is None


def test_our_own_events_need_no_mapping_and_are_read_beside_one() -> None:
    own = Event(id="1", source="/ci", type=TYPE, data=event()["data"])
    for mapping in (None, compile_mapping(OWN)):
        found = EventMapper().map(event_source(mapping=mapping), own)
        assert found.change == ModelChange("s3://models/magika/7", version="7")
    assert EventMapper().map(event_source(), sent()).ignored


def test_the_api_refuses_an_event_source_whose_mapping_is_none() -> None:
    spec: dict[str, Any] = {
        "source": "/ci",
        "auth": {"hmac": {"secretRef": {"name": "key"}}},
        "models": ["*"],
        "storagePrefixes": ["s3://models/"],
    }
    obj = {"apiVersion": "knodel.dev/v1alpha1", "kind": "EventSource", "metadata": {"name": "ci"}}
    assert list(validate_event_source(None, {**obj, "spec": {**spec, "mapping": OWN}})) == []
    wrong = {**OWN, "model": "$..a", "when": ["b"]}
    faults = validate_event_source(None, {**obj, "spec": {**spec, "mapping": wrong}})
    assert [fault.path for fault in faults] == ["spec.mapping.model", "spec.mapping.when"]
    assert [fault.path for fault in validate_event_source(None, {**obj, "spec": {**spec, "mapping": 7}})] == [
        "spec.mapping"
    ]


def test_an_event_with_too_many_values_is_refused_before_any_path_is_followed() -> None:
    compiled = compile_mapping({**OWN, "when": ["$.data.many[?@.a[?@ == 1]]"]})
    assert compiled.map(sent({**DATA, "many": [{"a": [1]}] * 5_000}), "ml").change is not None
    with pytest.raises(BadEvent, match="more than 20000 values") as caught:
        compiled.map(sent({**DATA, "many": [[[0] * 100] * 100] * 3}), "ml")
    assert caught.value.status == 413


def test_a_path_that_cannot_be_followed_in_the_data_is_told_to_the_sender() -> None:
    mapping = compile_mapping({"model": "iris", "storageUri": "s3://m/", "when": ["$.data[?@ && value(@)]"]})
    with pytest.raises(BadEvent, match=r"the mapped event: .* cannot be evaluated") as caught:
        mapping.map(Event(id="1", source="s", type="t", data=[1]), "default")
    assert caught.value.status == 400


@pytest.mark.parametrize("path", ["$.data[?@ == 1e400]", "$.data[1e9]"])
def test_a_number_that_the_engine_cannot_read_is_a_fault_of_the_mapping(path: str) -> None:
    """Otherwise one tenant's EventSource could end the webhook of all tenants."""
    [fault] = mapping_faults({"model": "iris", "storageUri": "s3://m/", "when": [path]})
    assert fault.path == "spec.mapping.when"
