"""Presets: events of jobs, MLflow and CDEvents become the right change; others are ignored with a reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.net.cloudevents import Event
from eventing.mapping.jobs import JobKind
from eventing.mapping.mapping import compile_mapping
from eventing.mapping.presets import PLAIN_JSON, PRESETS
from eventing.objects.ports import Mapped, ModelChange, ModelRef
from tests.eventing.job_objects import ANNOTATIONS, COMPLETED, KINDS, completed, failed, job_of, running

UPDATE = "dev.knative.apiserver.resource.update"
DIGEST = "sha256:" + "a" * 64


def mapped(preset: str, data: Any, type: str = UPDATE, id: str = "e-1", **fields: Any) -> Mapped:
    """Return the meaning of an event for the preset with `fields`."""
    event = Event(id=id, source="https://10.96.0.1:443", type=type, data=data)
    return compile_mapping({"preset": preset, **fields}).map(event, "default")


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> JobKind:
    """Each kind of job."""
    found: JobKind = request.param
    return found


def test_a_completed_job_is_a_new_version_of_the_model_that_its_annotations_name(kind: JobKind) -> None:
    found = mapped("job", job_of(kind, completed(kind)))
    assert found == Mapped(
        "8f2b",
        "/apis/jobs",
        datetime(2026, 1, 1, 12, tzinfo=UTC),
        ModelRef("ml", "iris"),
        ModelChange("s3://models/iris/7/", version="train-iris-7"),
        {},
    )


def test_every_update_of_a_completed_job_is_the_same_effect(kind: JobKind) -> None:
    first = mapped("job", job_of(kind, completed(kind)), id="e-1", type="dev.knative.apiserver.resource.add")
    later = mapped("job", job_of(kind, completed(kind), labels={"seen": "yes"}), id="e-2")
    assert (first.source, first.id) == (later.source, later.id)


@pytest.mark.parametrize("status", [running, failed])
def test_a_job_that_has_not_completed_means_nothing_yet(kind: JobKind, status: Any) -> None:
    found = mapped("job", job_of(kind, status(kind)))
    assert (found.model, found.change, found.ignored) == (None, None, "the job has not completed")


def test_what_is_ignored_of_a_job_is_recorded_once_and_never_under_the_id_of_its_effect(kind: JobKind) -> None:
    first = mapped("job", job_of(kind, running(kind)), id="e-1")
    again = mapped("job", job_of(kind, running(kind)), id="e-2")
    foreign = mapped("job", job_of(kind, completed(kind), annotations={}), id="e-3")
    effect = mapped("job", job_of(kind, completed(kind)), id="e-4")
    assert first.id == again.id
    assert len({first.id, foreign.id, effect.id}) == 3
    assert foreign.ignored == "the job has no annotation knodel.dev/model"


def test_annotations_say_all_that_our_own_event_says() -> None:
    job = KINDS["Job of batch/v1"]
    told = {
        **ANNOTATIONS,
        "knodel.dev/digest": DIGEST,
        "knodel.dev/version": "7",
        "knodel.dev/model-format": "onnx",
        "knodel.dev/metrics": '{"accuracy": 0.98}',
    }
    found = mapped("job", job_of(job, completed(job), annotations=told))
    assert found.change == ModelChange("s3://models/iris/7/", DIGEST, "7", "onnx")
    assert found.metrics == {"accuracy": 0.98}


def test_a_job_cannot_speak_of_a_model_of_another_namespace() -> None:
    job = KINDS["Job of batch/v1"]
    found = mapped("job", job_of(job, completed(job), namespace="other"))
    assert found.model == ModelRef("other", "iris")  # which an EventSource for `default` does not let in


def test_a_job_that_names_no_place_means_nothing() -> None:
    job = KINDS["Job of batch/v1"]
    found = mapped("job", job_of(job, completed(job), annotations={"knodel.dev/model": "iris"}))
    assert found.ignored == "it has no storageUri"


def test_an_event_that_only_names_its_job_says_how_to_get_the_whole() -> None:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-iris-7", "namespace": "ml"}
    found = mapped("job", reference, "dev.knative.apiserver.ref.update")
    assert "mode: Resource" in found.ignored


@pytest.mark.parametrize(
    ("data", "type"),
    [
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": ANNOTATIONS}}, UPDATE),
        ({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"annotations": ANNOTATIONS}}, UPDATE),
        (None, UPDATE),
        ([1, 2], UPDATE),
        ("text", UPDATE),
        ({}, "dev.knative.apiserver.resource.delete"),
        ({}, "org.example.other"),
    ],
)
def test_what_is_no_job_means_nothing(data: Any, type: str) -> None:
    found = mapped("job", data, type)
    assert found.ignored
    assert found.id == "ignored/e-1"


def mlflow(entity: str, action: str, **data: Any) -> dict[str, Any]:
    """Return the body of a webhook of MLflow 3."""
    at = "2026-01-01T12:00:00.250000+00:00"
    return {
        "entity": entity,
        "action": action,
        "timestamp": at,
        "data": {"name": "Fraud_Model", "version": "3", **data},
    }


def test_a_new_version_in_mlflow_is_one_here() -> None:
    sent = mlflow("model_version", "created", source="s3://mlflow/1/ab/artifacts/model", run_id="ab", tags={})
    found = mapped("mlflow", sent, PLAIN_JSON)
    assert found.id == "Fraud_Model/3"
    assert found.time == datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    assert found.model == ModelRef("default", "fraud-model")
    assert found.change == ModelChange("s3://mlflow/1/ab/artifacts/model", version="3")


@pytest.mark.parametrize("source", ["models:/m-12", "runs:/ab/model", "mlflow-artifacts:/1/ab"])
def test_a_version_whose_place_mlflow_alone_knows_waits_for_a_tag(source: str) -> None:
    created = mapped("mlflow", mlflow("model_version", "created", source=source, tags={}), PLAIN_JSON)
    tag = mlflow("model_version_tag", "set", key="knodel.storageUri", value="s3://mlflow/1/ab")
    tagged = mapped("mlflow", tag, PLAIN_JSON)
    assert created.ignored == "it has no storageUri"
    assert tagged.change == ModelChange("s3://mlflow/1/ab", version="3")
    assert created.id != tagged.id


def test_a_tag_that_is_there_from_the_beginning_says_the_place() -> None:
    tags = {"knodel.storageUri": "s3://mlflow/1/ab"}
    found = mapped("mlflow", mlflow("model_version", "created", source="models:/m-12", tags=tags), PLAIN_JSON)
    assert found.change == ModelChange("s3://mlflow/1/ab", version="3")


@pytest.mark.parametrize(
    "sent",
    [
        mlflow("registered_model", "created"),
        mlflow("model_version_alias", "created", alias="champion"),
        mlflow("model_version_tag", "set", key="stage", value="production"),
        mlflow("model_version_tag", "deleted", key="knodel.storageUri"),
        {"entity": "prompt", "action": "created", "timestamp": COMPLETED, "data": {"name": "p"}},
        {},
        [],
        None,
    ],
)
def test_other_events_of_mlflow_mean_nothing(sent: Any) -> None:
    assert mapped("mlflow", sent, PLAIN_JSON).ignored


def cdevent(purl: str, **custom: Any) -> dict[str, Any]:
    """Return the data of dev.cdevents.artifact.published (CDEvents 0.4)."""
    context = {
        "version": "0.4.1",
        "id": "e-1",
        "source": "/ci/iris",
        "type": "dev.cdevents.artifact.published.0.2.0",
        "timestamp": "2026-01-01T12:00:00.5Z",
    }
    subject = {"id": purl, "source": "/ci/iris", "type": "artifact", "content": {}}
    return {"context": context, "subject": subject, **({"customData": custom} if custom else {})}


def test_a_published_oci_artifact_is_a_new_version() -> None:
    purl = f"pkg:oci/iris@sha256%3A{'a' * 64}?repository_url=registry.example.org/models/iris&tag=7"
    found = mapped("cdevents", cdevent(purl), "dev.cdevents.artifact.published.0.2.0", model="iris")
    assert found.id == "e-1"
    assert found.time == datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
    assert found.change == ModelChange(f"oci://registry.example.org/models/iris@{DIGEST}")


def test_custom_data_of_a_cdevent_say_model_and_place() -> None:
    told = {"model": "iris", "storageUri": "s3://models/iris/7/", "version": "7", "metrics": {"accuracy": 0.9}}
    found = mapped("cdevents", cdevent("pkg:generic/iris@7", **told), "dev.cdevents.artifact.published.0.3.0-draft")
    assert (found.model, found.metrics) == (ModelRef("default", "iris"), {"accuracy": 0.9})
    assert found.change == ModelChange("s3://models/iris/7/", version="7")


def test_other_cdevents_and_other_packages_mean_nothing() -> None:
    packaged = mapped("cdevents", cdevent("pkg:oci/iris"), "dev.cdevents.artifact.packaged.0.2.0", model="iris")
    program = mapped("cdevents", cdevent("pkg:golang/x/y@1"), "dev.cdevents.artifact.published.0.2.0", model="iris")
    assert packaged.ignored == "no mapping rule matches event type 'dev.cdevents.artifact.packaged.0.2.0'"
    assert program.ignored == "it has no storageUri"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_json_data(name: str) -> None:
    assert json.loads(json.dumps([dict(rule) for rule in PRESETS[name]]))
    compile_mapping({"preset": name})
