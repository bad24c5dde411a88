"""Batches: the result for each event, and the status of the response."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.errors import FieldError, Invalid, Unavailable
from eventing.limits import WebhookLimits
from eventing.objects.ports import RecordResult
from tests.eventing.webhook import BATCH, Webhook, changed, event


async def test_all_taken_is_202_with_a_verdict_for_each() -> None:
    webhook = Webhook()

    reply = await webhook.send([event(id="1"), event(id="2"), event(id="1")], BATCH)

    assert reply.status == 202
    assert [(one["id"], one["status"], one["message"]) for one in reply.json] == [
        ("1", 202, "taken"), ("2", 202, "taken"), ("1", 202, "copy"),
    ]  # fmt: skip


async def test_an_empty_one_is_202() -> None:
    reply = await Webhook().send([], BATCH)

    assert (reply.status, reply.json) == (202, [])


async def test_some_refused_is_207_and_says_which(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook()

    reply = await webhook.send([event(id="1"), event(id=None), changed(model="ocr") | {"source": "x:y"}], BATCH)

    assert reply.status == 207
    assert [one["status"] for one in reply.json] == [202, 400, 401]
    assert [record.getMessage()[:3] for record in caplog.records] == ["400", "401"]
    assert len(webhook.ledger.entries) == 1


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ([event(id=None), event(source="a b")], 400),
        ([event(id=None), changed(storageUri="s3://x/y")], 403),
        ([changed(storageUri="s3://x/y"), event(source="x:y")], 401),
    ],
)
async def test_none_taken_is_what_is_gravest(members: list[Any], status: int) -> None:
    assert (await Webhook().send(members, BATCH)).status == status


async def test_one_that_cannot_be_kept_now_makes_it_503() -> None:
    webhook = Webhook()
    webhook.ledger.failure = Unavailable("full")

    reply = await webhook.send([event(id="1"), event(id=None)], BATCH)

    assert reply.status == 503
    assert reply.headers["retry-after"] == "1"
    assert [one["status"] for one in reply.json] == [503, 400]


async def test_those_above_the_rate_make_it_429_and_the_rest_are_kept() -> None:
    webhook = Webhook(limits=WebhookLimits(events=2, requests=100))

    reply = await webhook.send([event(id=str(number)) for number in range(3)], BATCH)

    assert reply.status == 429
    assert [one["status"] for one in reply.json] == [202, 202, 429]


async def test_a_proof_is_asked_once_for_all_events_of_a_source() -> None:
    webhook = Webhook()
    asked = []
    secrets = webhook.keys.secrets

    async def counted(namespace: str, name: str, *, again: bool = False) -> tuple[str, ...]:
        asked.append(name)
        return await secrets(namespace, name, again=again)

    webhook.keys.secrets = counted  # type: ignore[method-assign]
    await webhook.send([event(id=str(number)) for number in range(50)], BATCH)

    assert asked == ["training-key"]


async def test_what_can_never_be_kept_is_refused_alone() -> None:
    webhook = Webhook()
    webhook.ledger.answers["2"] = Invalid("ModelEvent", [FieldError("spec", "it is too large")])
    reply = await webhook.send([event(id="1"), event(id="2"), event(id="3")], BATCH)
    assert reply.status == 207
    assert [one["status"] for one in reply.json] == [202, 400, 202]
    assert "too large" in reply.json[1]["message"]


async def test_what_cannot_be_kept_now_is_told_so_alone() -> None:
    webhook = Webhook()
    webhook.ledger.answers["2"] = Unavailable("the disk is full")
    reply = await webhook.send([event(id="1"), event(id="2")], BATCH)
    assert (reply.status, [one["status"] for one in reply.json]) == (503, [202, 503])
    assert "disk" not in reply.json[1]["message"]


async def test_an_id_that_was_for_something_else_is_refused_and_a_copy_of_a_failed_one_says_so() -> None:
    webhook = Webhook()
    webhook.ledger.answers |= {"1": RecordResult.CONFLICT, "2": RecordResult.DUPLICATE_OF_FAILED}
    reply = await webhook.send(event(id="1"))
    assert reply.status == 400 and b"another model or change" in reply.body
    reply = await webhook.send(event(id="2"))
    assert (reply.status, reply.headers["knodel-event"]) == (202, "copy, failed")
