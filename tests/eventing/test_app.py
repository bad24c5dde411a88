"""The webhook's responses to single requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from clusters.base.errors import Unavailable
from eventing.limits import WebhookLimits
from eventing.objects.ports import HmacAuth, OidcAuth
from tests.eventing.webhook import STRUCTURED, Webhook, ask, changed, event, event_source, signature
from tests.support.clock import SteppedClock


async def test_an_event_is_taken_kept_and_answered_202_without_a_body() -> None:
    webhook = Webhook()

    reply = await webhook.send(event(time="2026-01-01T00:00:00Z", sequence="7"))

    assert (reply.status, reply.body) == (202, b"")
    assert reply.headers["knodel-event"] == "taken"
    [entry] = webhook.ledger.entries.values()
    assert str(entry.mapped.model) == "default/magika"
    assert entry.mapped.change is not None
    assert entry.mapped.change.storage_uri == "s3://models/magika/7"
    assert entry.received_at == webhook.clock.now()


@pytest.mark.fault("E1")
async def test_a_hundred_copies_at_once_are_one_event_and_all_are_2xx() -> None:
    webhook = Webhook()

    replies = await asyncio.gather(*(webhook.send(event()) for _ in range(100)))

    assert {reply.status for reply in replies} == {202}
    assert sorted(reply.headers["knodel-event"] for reply in replies) == ["copy"] * 99 + ["taken"]
    assert len(webhook.ledger.entries) == 1


async def test_what_means_nothing_is_kept_as_ignored() -> None:
    webhook = Webhook()

    reply = await webhook.send(event(type="com.example.other", data={"any": "thing"}))

    assert reply.status == 202
    assert reply.headers["knodel-event"] == "ignored"
    [entry] = webhook.ledger.entries.values()
    assert entry.mapped.ignored == "no mapping rule matches event type 'com.example.other'"


@pytest.mark.bad_input("event-protocol")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
async def test_other_methods_are_405_with_what_is_allowed(method: str) -> None:
    reply = await Webhook().send(event(), method=method)

    assert reply.status == 405
    assert reply.headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize("path", ["/", "/eventsource", "/events/", "/events/a/b/c", "/events//b", "/api/events"])
async def test_other_paths_are_404(path: str) -> None:
    assert (await Webhook().send(event(), path=path)).status == 404


@pytest.mark.bad_input("event-meaning")
@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", STRUCTURED, 400),
        (event(id=None), STRUCTURED, 400),
        (event(specversion="9"), STRUCTURED, 400),
        (event(sequence="nine", sequencetype="Integer"), STRUCTURED, 400),
        (event(sequence="2147483648", sequencetype="Integer"), STRUCTURED, 400),
        (b"x", "application/xml", 415),
        (b"x", "application/cloudevents+avro", 415),
        (changed(model=None), STRUCTURED, 400),
        (changed(model="UPPER"), STRUCTURED, 400),
        (changed(storageUri=7), STRUCTURED, 400),
        (changed(digest="md5:x"), STRUCTURED, 400),
        (changed(version="a\nb"), STRUCTURED, 400),
        (changed(storageUri="s3://models/a\nb"), STRUCTURED, 400),
        (changed(modelFormat="onnx\x85"), STRUCTURED, 400),
        (event(data=[]), STRUCTURED, 400),
    ],
)
async def test_a_wrong_event_is_refused_with_one_line_of_why_and_nothing_is_kept(
    body: Any, content_type: str, status: int
) -> None:
    webhook = Webhook()

    reply = await webhook.send(body, content_type)

    assert reply.status == status
    assert reply.json["error"].isprintable()
    assert not webhook.ledger.entries


@pytest.mark.bad_input("event-size")
@pytest.mark.fault("E6")
async def test_a_body_above_a_mebibyte_is_413_before_it_is_read() -> None:
    webhook = Webhook()
    headers = [("content-type", STRUCTURED), ("content-length", str(2**20 + 1))]

    announced = await ask(webhook.app, "POST", "/events", headers, [])
    pieces = [b" " * 300_000] * 4
    chunked = await ask(webhook.app, "POST", "/events", [("content-type", STRUCTURED)], pieces)

    assert (announced.status, chunked.status) == (413, 413)


@pytest.mark.fault("E6")
async def test_a_body_of_a_mebibyte_is_taken() -> None:
    sent = event(data=None)
    padding = 2**20 - len(json.dumps(sent | {"data": ""}))

    reply = await Webhook().send(sent | {"data": "x" * padding, "type": "other"})

    assert reply.status == 202


@pytest.mark.bad_input("event-size")
@pytest.mark.fault("E6")
async def test_all_bodies_together_have_a_limit_and_give_their_room_back() -> None:
    webhook = Webhook(limits=WebhookLimits(bodies=100_000))

    refused = await webhook.send(b" " * 100_001)
    reply = await webhook.send(event())

    assert (refused.status, reply.status) == (429, 202)
    assert refused.headers["retry-after"] == "1"
    assert "knodel_webhook_bytes 0" in "\n".join(line for family in webhook.app.families() for line in family.lines())


async def test_a_sender_that_leaves_is_not_answered() -> None:
    reply = await ask(Webhook().app, "POST", "/events", [("content-type", STRUCTURED)], [])

    assert reply.status == 0


@pytest.mark.bad_input("event-signature")
async def test_without_an_event_source_without_a_signature_or_by_another_key_it_is_401() -> None:
    unsigned = await Webhook().send(event(), sign=False)
    unknown = await Webhook(sources=[]).send(event())
    other = await Webhook(sources=[event_source(auth=HmacAuth("other-key"))]).send(event())
    elsewhere = await Webhook().send(event(source="https://elsewhere.example"))

    assert [reply.status for reply in (unsigned, unknown, other, elsewhere)] == [401] * 4
    assert unsigned.headers["www-authenticate"] == "Bearer"
    assert "webhook-signature" in unsigned.json["error"]


@pytest.mark.fault("E11")
async def test_a_copy_within_the_tolerance_is_2xx_and_outside_of_it_401() -> None:
    webhook = Webhook()
    body = json.dumps(event()).encode()
    headers = [("content-type", STRUCTURED), *signature(body, webhook.clock.now().timestamp()).items()]

    statuses = []
    for seconds in (0, 300, 1):
        webhook.clock.step(seconds)
        statuses.append((await ask(webhook.app, "POST", "/events", headers, [body])).status)

    assert statuses == [202, 202, 401]
    assert len(webhook.ledger.entries) == 1


@pytest.mark.fault("E5", "E11")
async def test_a_delivery_that_is_thirty_days_late_is_401_whatever_is_still_known_of_it() -> None:
    webhook = Webhook()
    body = json.dumps(event()).encode()
    headers = [("content-type", STRUCTURED), *signature(body, webhook.clock.now().timestamp()).items()]
    webhook.clock.step(30 * 86_400)

    reply = await ask(webhook.app, "POST", "/events", headers, [body])

    assert (reply.status, len(webhook.ledger.entries)) == (401, 0)
    assert "300 s" in reply.json["error"]


async def test_under_hmac_a_binary_event_is_401_since_its_attributes_are_not_signed() -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": event()["source"], "ce-type": event()["type"]}

    reply = await Webhook().send(event()["data"], "application/json", headers)

    assert reply.status == 401
    assert "structured" in reply.json["error"]


async def test_of_several_event_sources_the_first_whose_proof_holds_is_taken() -> None:
    mine = event_source(name="mine", auth=HmacAuth("training-key"))
    others = event_source(name="others", namespace="other", auth=HmacAuth("no-such-key"))
    webhook = Webhook(sources=[others, mine])

    assert (await webhook.send(event())).status == 202
    [entry] = webhook.ledger.entries.values()
    assert entry.event_source.name == "mine"


@pytest.mark.bad_input("event-address", "event-tenant")
@pytest.mark.parametrize(
    "data",
    [
        {"namespace": "other"},
        {"model": "ocr"},
        {"storageUri": "http://169.254.169.254/latest"},
        {"storageUri": "file:///etc/passwd"},
        {"storageUri": "s3://models/../secret"},
        {"storageUri": "s3://models.evil/x"},
    ],
)
async def test_a_known_sender_that_may_not_is_403(data: dict[str, str]) -> None:
    webhook = Webhook(sources=[event_source(models=("mag*",))])

    reply = await webhook.send(changed(**data))

    assert reply.status == 403
    assert "EventSource default/training" in reply.json["error"]
    assert not webhook.ledger.entries


@pytest.mark.fault("E10")
async def test_when_nothing_can_be_kept_it_is_503_and_when_to_come_back() -> None:
    webhook = Webhook()
    webhook.ledger.failure = Unavailable("disk full on /dev/secret", retry_after=2.5)

    refused = await webhook.send(event())
    webhook.ledger.failure = None
    taken = await webhook.send(event())

    assert (refused.status, refused.headers["retry-after"]) == (503, "3")
    assert "secret" not in refused.body.decode()
    assert (taken.status, taken.headers["knodel-event"]) == (202, "taken")


async def test_when_keys_cannot_be_read_it_is_503_and_not_401() -> None:
    webhook = Webhook()
    webhook.keys.failure = Unavailable("no answer")

    reply = await webhook.send(event())

    assert reply.status == 503
    assert reply.headers["retry-after"]


async def test_a_fault_of_ours_is_500_without_details(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook()
    webhook.ledger.failure = ZeroDivisionError("inner")  # type: ignore[assignment]

    reply = await webhook.send(event())

    assert reply.status == 500
    assert "inner" not in reply.body.decode()
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.fault("E7")
async def test_more_than_the_rate_is_429_and_passes_later() -> None:
    webhook = Webhook(limits=WebhookLimits(events=2, requests=100))

    statuses = [(await webhook.send(event(id=str(number)))) for number in range(3)]
    webhook.clock.step(float(statuses[2].headers["retry-after"]))
    later = await webhook.send(event(id="2"))

    assert [reply.status for reply in statuses] == [202, 202, 429]
    assert later.status == 202


async def test_a_flood_of_strangers_is_429_before_anything_is_decoded() -> None:
    webhook = Webhook(limits=WebhookLimits(requests=2))

    statuses = [(await webhook.send(b"{", sign=False)).status for _ in range(4)]

    assert statuses == [400, 400, 429, 429]


async def test_refusals_are_logged_a_few_a_second_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook(clock=SteppedClock())

    for _ in range(50):
        await webhook.send(b"{")

    assert len(caplog.records) == 10
    assert "400 to 127.0.0.1" in caplog.text


async def test_an_oidc_source_does_not_take_a_signature() -> None:
    source = event_source(auth=OidcAuth("https://issuer.example", "knodel", "ci"))

    assert (await Webhook(sources=[source]).send(event())).status == 401
