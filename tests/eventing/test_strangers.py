"""Requests of unknown senders: they are not decoded, and take no resources from known senders."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.net import strict_json
from clusters.net.cloudevents import LONGEST, _are_plain_names
from eventing.limits import WebhookLimits
from eventing.objects.ports import OidcAuth
from tests.eventing.webhook import BATCH, STRUCTURED, Webhook, event, event_source


@pytest.mark.bad_input("event-signature")
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (event(), STRUCTURED),
        ([event(id="1"), event(id="2", source="x:y")], BATCH),
        ([event(), 7, event(id=7)], BATCH),
    ],
)
async def test_what_a_stranger_sends_is_not_decoded(
    body: Any, content_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = Webhook()
    decoded: list[bytes] = []
    decode = strict_json.decode

    def noted(body: bytes) -> Any:
        decoded.append(body)
        return decode(body)

    monkeypatch.setattr(strict_json, "decode", noted)

    stranger = await webhook.send(body, content_type, sign=False)
    assert (stranger.status, decoded) == (401, [])
    if content_type == BATCH:
        assert [one["status"] for one in stranger.json] == [401] * len(body)

    await webhook.send(body, content_type)
    assert len(decoded) == 1


async def test_names_that_a_stranger_sends_are_not_remembered() -> None:
    _are_plain_names.cache_clear()
    for number in range(3):
        name = f"{number}" + "x" * LONGEST
        assert (await Webhook().send({name: "x"}, sign=False)).status == 400
        assert (await Webhook().send(event(**{name: "x"}))).status == 400
    assert _are_plain_names.cache_info().currsize == 0


async def test_nor_are_the_data_of_a_binary_event_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = Webhook(sources=[event_source(auth=OidcAuth("https://issuer.example", "knodel", "ci"))])
    monkeypatch.setattr(strict_json, "decode", None)
    headers = {f"ce-{name}": event()[name] for name in ("specversion", "id", "source", "type")}

    assert (await webhook.send(event()["data"], "application/json", headers, sign=False)).status == 401


async def test_decoded_events_of_known_senders_have_a_limit_together_and_strangers_no_part_of_it() -> None:
    webhook = Webhook(limits=WebhookLimits(decoded=1000))

    assert (await webhook.send(event(), sign=False)).status == 401
    assert (await webhook.send(event())).status == 429
    assert "knodel_webhook_bytes 0" in "\n".join(line for family in webhook.app.families() for line in family.lines())


async def test_one_peer_does_not_fill_the_room_of_bodies() -> None:
    webhook = Webhook(limits=WebhookLimits(bodies=10_000))

    refused = await webhook.send(b" " * 5_001)
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert (await webhook.send(event())).status == 202
