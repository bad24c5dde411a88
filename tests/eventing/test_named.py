"""POST /events/[NAMESPACE/]NAME: one EventSource, also for plain JSON."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.types import Message

from eventing.limits import WebhookLimits
from tests.eventing.webhook import STRUCTURED, Webhook, event, event_source

MLFLOW = event_source(name="mlflow", source="mlflow")
BODY = json.dumps({"entity": "model_version", "action": "created", "data": {"name": "magika"}}).encode()


@pytest.mark.parametrize("path", ["/events/mlflow", "/events/default/mlflow"])
async def test_a_foreign_document_is_an_event_for_its_mapping(path: str) -> None:
    webhook = Webhook(sources=[MLFLOW])

    reply = await webhook.send(BODY, "application/json", path=path)

    assert reply.status == 202
    [entry] = webhook.ledger.entries.values()
    assert (entry.event.id, entry.event.source) == ("msg-1", "mlflow")
    assert entry.event.data["entity"] == "model_version"


async def test_an_unknown_name_and_a_wrong_proof_are_the_same_401() -> None:
    webhook = Webhook(sources=[MLFLOW])

    for content_type, body in (("application/json", BODY), (STRUCTURED, event())):
        unknown = await webhook.send(body, content_type, path="/events/nobody", sign=False)
        unsigned = await webhook.send(body, content_type, path="/events/mlflow", sign=False)

        assert (unknown.status, unsigned.status) == (401, 401)
        assert unknown.json["error"].replace("nobody", "mlflow") == unsigned.json["error"]


async def test_time_does_not_tell_which_names_there_are() -> None:
    webhook = Webhook(sources=[MLFLOW], limits=WebhookLimits(unknown=0.1))
    for name in ("nobody", "mlflow"):
        asked = asyncio.create_task(webhook.send(BODY, "application/json", path=f"/events/{name}", sign=False))
        await settle()
        webhook.clock.step(0.09)
        await settle()
        assert not asked.done()
        webhook.clock.step(0.02)
        assert (await asked).status == 401
    assert (await webhook.send(BODY, "application/json", path="/events/mlflow")).status == 202
    assert (await webhook.send(event(source="x:y"))).status == 401


async def test_nor_does_it_to_one_who_sends_slowly() -> None:
    webhook = Webhook(sources=[MLFLOW], limits=WebhookLimits(unknown=0.1))
    scope = {
        "type": "http", "method": "POST", "path": "/events/nobody", "headers": [(b"content-type", b"application/json")]
    }  # fmt: skip
    answers: list[Message] = []

    async def receive() -> Message:
        webhook.clock.step(10.0)
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Message) -> None:
        answers.append(message)

    asked = asyncio.create_task(webhook.app(scope, receive, send))
    await settle()
    webhook.clock.step(0.09)
    await settle()
    assert not answers
    webhook.clock.step(0.02)
    await asked
    assert answers[0]["status"] == 401


async def settle() -> None:
    """Run all tasks that do not wait for the clock."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_cloud_event_there_is_taken_under_that_event_source_only() -> None:
    webhook = Webhook(sources=[event_source(), event_source(name="other", source="x:y")])

    right = await webhook.send(event(), path="/events/training")
    wrong = await webhook.send(event(), path="/events/other")

    assert (right.status, wrong.status) == (202, 401)


async def test_another_format_is_415_and_bad_json_400() -> None:
    webhook = Webhook(sources=[MLFLOW])

    form = await webhook.send(b"a=b", "application/x-www-form-urlencoded", path="/events/mlflow")
    broken = await webhook.send(b"{", "application/json", path="/events/mlflow")

    assert (form.status, broken.status) == (415, 400)
