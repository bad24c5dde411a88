"""The definitions of EventSource and ModelEvent hold what our own code writes and reads, and no other field."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from clusters.base.objects import EVENT_SOURCE, MODEL_EVENT
from eventing.mapping.spec import MappingSpec
from eventing.objects.apis import ModelChange, ModelRef
from eventing.objects.model_event import EventSpec, EventStatus, make_model_event
from serving.crds.definition import make_crd, make_schema
from serving.types.schema import RULES
from tests.manifests.checker import faults

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FULL = EventSpec(
    event_source="train",
    source="/train",
    id="1",
    type="t",
    received_at=NOW,
    time=NOW,
    sequence="1",
    subject="s",
    traceparent="00-a-b-01",
    model=ModelRef("default", "magika"),
    change=ModelChange("s3://models/1", "sha256:0", "1", "onnx"),
    metrics={"accuracy": 0.9},
    data=[1, {"a": None}],
    ignored="not at all",
)
STATUS = EventStatus("Failed", "NotFound", "there is none", 3, NOW, NOW, "magika-00001", 2)


def names(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def test_every_field_of_an_event_stands_in_the_definition_and_no_other() -> None:
    schema = make_schema(MODEL_EVENT)
    spec, status = (schema["properties"][part] for part in ("spec", "status"))
    assert set(spec["properties"]) == names(EventSpec)
    assert set(spec["properties"]["change"]["properties"]) == names(ModelChange)
    assert set(spec["properties"]["model"]["properties"]) == names(ModelRef)
    assert set(status["properties"]) == names(EventStatus)
    obj = {**make_model_event("default", FULL), "metadata": {"name": "e"}, "status": STATUS.to_json()}
    assert list(faults(schema, obj)) == []


def test_an_event_that_means_nothing_is_one_too() -> None:
    ignored = EventSpec(event_source="train", source="/s", id="1", type="t", received_at=NOW, ignored="nothing here")
    obj = {**make_model_event("default", ignored), "metadata": {"name": "e"}}
    assert list(faults(make_schema(MODEL_EVENT), obj)) == []


def test_the_spec_of_an_event_never_changes() -> None:
    [rule] = make_schema(MODEL_EVENT)["properties"]["spec"][RULES]
    assert rule["rule"] == "self == oldSelf"


def test_kubectl_shows_what_people_ask_for() -> None:
    for made, shown in (
        (make_crd(EVENT_SOURCE), ["Source", "Models", "Ready", "Reason", "Age"]),
        (make_crd(MODEL_EVENT), ["Model", "Phase", "Source", "Id", "Age"]),
    ):
        [version] = made["spec"]["versions"]
        columns = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
        assert columns == shown
        assert version["subresources"] == {"status": {}}


def test_who_sends_events_has_to_be_proved() -> None:
    spec = make_schema(EVENT_SOURCE)["properties"]["spec"]
    assert set(spec["required"]) == {"source", "auth", "models", "storagePrefixes"}
    assert spec["properties"]["auth"][RULES][0]["rule"] == "has(self.hmac) != has(self.oidc)"


def test_every_field_of_a_mapping_stands_in_the_definition_and_no_other() -> None:
    schema = make_schema(EVENT_SOURCE)["properties"]["spec"]["properties"]["mapping"]
    assert set(schema["properties"]) == names(MappingSpec)
    written = {"preset": "job", "when": ["$.a", {"path": "$.b"}], "model": "iris", "version": ["$.c", "$.d"]}
    assert list(faults(schema, written)) == []
    assert set(faults(schema, {"preset": "jobs", "modle": "iris"})) == {".modle", ".preset"}
