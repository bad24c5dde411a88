"""Foreign senders at the real webhook: MLflow's signed deliveries, and jobs through Knative's broker."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from eventing.auth.hmac_keys import keys_of
from eventing.mapping.mapping import compile_mapping
from eventing.objects.ports import HmacAuth, ModelChange, ModelRef
from tests.eventing.issuer import AUTH, Issuer
from tests.eventing.job_objects import KINDS, completed, job_of, running
from tests.eventing.webhook import STRUCTURED, ListedKeys, Reply, Webhook, ask, event, event_source
from tests.support.clock import SteppedClock

MLFLOW_KEY = "a secret that somebody typed in"
JOB = KINDS["Job of batch/v1"]
TYPE = "dev.knative.apiserver.resource.update"


def mlflow_webhook() -> Webhook:
    """A webhook with an EventSource for MLflow."""
    mapping = compile_mapping({"preset": "mlflow"})
    source = event_source(name="mlflow", source="/mlflow", auth=HmacAuth("mlflow-key"), mapping=mapping)
    return Webhook(sources=[source], keys=ListedKeys({"mlflow-key": [MLFLOW_KEY]}))


async def deliver(
    webhook: Webhook,
    body: dict[str, Any],
    delivery: str = "4be2",
    key: str = MLFLOW_KEY,
    content_type: str = "application/json",
) -> Reply:
    """Sign like MLflow (mlflow/webhooks/delivery.py)."""
    content = json.dumps(body).encode()
    at = str(int(webhook.clock.now().timestamp()))
    made = hmac.new(key.encode(), f"{delivery}.{at}.".encode() + content, hashlib.sha256).digest()
    headers = {
        "content-type": content_type,
        "x-mlflow-delivery-id": delivery,
        "x-mlflow-timestamp": at,
        "x-mlflow-signature": "v1," + base64.b64encode(made).decode(),
    }
    return await ask(webhook.app, "POST", "/events/mlflow", headers.items(), [content])


def version(number: str = "3", **data: Any) -> dict[str, Any]:
    """Return the delivery for a new model version in MLflow."""
    told = {"name": "Iris", "version": number, "source": f"s3://models/iris/{number}", "run_id": "ab", "tags": {}}
    at = "2026-01-01T00:00:00.5+00:00"
    return {"entity": "model_version", "action": "created", "timestamp": at, "data": {**told, **data}}


async def test_a_new_version_in_mlflow_changes_its_model_once_however_often_it_is_delivered() -> None:
    webhook = mlflow_webhook()

    for delivery, told in (("4be2", "taken"), ("4be2", "copy"), ("77aa", "copy")):
        reply = await deliver(webhook, version(), delivery)
        assert (reply.status, reply.headers["knodel-event"]) == (202, told), reply.body

    [entry] = webhook.ledger.entries.values()
    assert entry.mapped.model == ModelRef("default", "iris")
    assert entry.mapped.change == ModelChange("s3://models/iris/3", version="3")


async def test_a_delivery_by_another_key_or_to_other_places_is_refused() -> None:
    webhook = mlflow_webhook()
    assert (await deliver(webhook, version(), key="another")).status == 401
    assert (await deliver(webhook, version(source="s3://elsewhere/iris"))).status == 403
    assert webhook.ledger.entries == {}


@pytest.mark.parametrize("text", ["\n", "changeme", "whsec_AAAA"])
async def test_a_secret_that_is_no_key_lets_nobody_in(text: str) -> None:
    webhook = mlflow_webhook()
    secret = {"data": {"current": base64.b64encode(text.encode()).decode()}}
    webhook.keys.given["mlflow-key"] = keys_of(secret)

    assert (await deliver(webhook, version(), key=text.strip())).status == 401


async def test_a_cloud_event_is_not_signed_as_mlflow_signs() -> None:
    webhook = mlflow_webhook()

    assert (await deliver(webhook, event(source="/mlflow"), content_type=STRUCTURED)).status == 401


async def test_what_mlflow_tells_besides_is_recorded_as_ignored() -> None:
    webhook = mlflow_webhook()
    reply = await deliver(webhook, {**version(), "entity": "registered_model"})
    [entry] = webhook.ledger.entries.values()
    assert (reply.status, reply.headers["knodel-event"]) == (202, "ignored")
    assert entry.mapped.ignored == "it is not a new model version"


@pytest.fixture
def broker() -> tuple[Webhook, Issuer]:
    """Return a webhook that accepts the service account of a Trigger, and the issuer of its tokens."""
    clock = SteppedClock()
    issuer = Issuer(clock)
    mapping = compile_mapping({"preset": "job"})
    source = event_source(namespace="ml", name="training-jobs", source="https://*", auth=AUTH, mapping=mapping)
    return Webhook(sources=[source], clock=clock, issuers=issuer), issuer


async def tell(broker: tuple[Webhook, Issuer], job: Any, id: str) -> Reply:
    """As a Trigger sends what an ApiServerSource made (knative/eventing pkg/adapter/apiserver/events)."""
    webhook, issuer = broker
    metadata = job["metadata"]
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {issuer.token()}",
        "ce-specversion": "1.0",
        "ce-id": id,
        "ce-source": "https://10.96.0.1:443",
        "ce-type": TYPE,
        "ce-subject": f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}",
        "ce-kind": "Job",
        "ce-apiversion": "batch/v1",
        "ce-name": metadata["name"],
        "ce-namespace": metadata["namespace"],
        "ce-knativearrivaltime": "2026-01-01T00:00:00.1Z",
    }
    return await ask(webhook.app, "POST", "/events", headers.items(), [json.dumps(job).encode()])


async def test_a_job_from_its_start_to_its_end_is_one_change_and_one_ignored_event(
    broker: tuple[Webhook, Issuer],
) -> None:
    told = []
    for number, status in enumerate((running(JOB), running(JOB), completed(JOB), completed(JOB))):
        reply = await tell(broker, job_of(JOB, status), f"id-{number}")
        assert reply.status == 202, reply.body
        told.append(reply.headers["knodel-event"])

    assert told == ["ignored", "copy", "taken", "copy"]
    assert [entry.mapped.ignored for entry in broker[0].ledger.entries.values()] == ["the job has not completed", ""]


async def test_a_job_of_another_namespace_may_not_change_models_here(broker: tuple[Webhook, Issuer]) -> None:
    assert (await tell(broker, job_of(JOB, completed(JOB), namespace="other"), "id-1")).status == 403


async def test_a_job_whose_annotations_are_nonsense_is_refused(broker: tuple[Webhook, Issuer]) -> None:
    wrong = {"knodel.dev/model": "Iris!", "knodel.dev/storage-uri": "s3://models/iris"}
    reply = await tell(broker, job_of(JOB, completed(JOB), annotations=wrong), "id-1")
    assert reply.status == 400
    assert "model" in reply.json["error"]
