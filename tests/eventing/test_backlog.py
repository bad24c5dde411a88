"""The limit on pending events: 429 during a storm, also with several webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from eventing.limits import WebhookLimits
from eventing.mapping.event_source import pending_of, read_event_source
from eventing.objects.ports import RecordResult
from eventing.webhook import intake
from eventing.webhook.backlog import COUNT_LIFETIME
from tests.eventing.webhook import BATCH, SOURCE, ListedSources, Webhook, event, event_source
from tests.eventing.world import event_source as made_event_source


def events(first: int, number: int) -> list[dict[str, Any]]:
    return [event(id=str(one)) for one in range(first, first + number)]


def seen(webhook: Webhook, pending: int) -> None:
    """Let the webhook see an EventSource with `pending` events, as counted by the controller."""
    webhook.app._intake._sources = ListedSources(event_source(pending=pending))


@pytest.mark.fault("E7")
async def test_more_than_may_wait_are_told_to_come_later() -> None:
    webhook = Webhook(limits=WebhookLimits(pending=10))
    assert (await webhook.send(events(0, 9), BATCH)).status == 202
    assert (await webhook.send(event(id="9"))).status == 202

    refused = await webhook.send(event(id="10"))

    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert "default/training" in refused.json["error"]
    assert (await webhook.send(events(10, 3), BATCH)).status == 429
    assert len(webhook.ledger.entries) == 10


async def test_what_the_controller_has_counted_takes_the_place_of_what_was_taken() -> None:
    webhook = Webhook(limits=WebhookLimits(pending=10))
    await webhook.send(events(0, 10), BATCH)
    seen(webhook, 8)
    assert (await webhook.send(events(10, 2), BATCH)).status == 202
    assert (await webhook.send(event(id="12"))).status == 429
    seen(webhook, 10)
    assert (await webhook.send(event(id="12"))).status == 429
    seen(webhook, 0)
    assert (await webhook.send(event(id="12"))).status == 202


async def test_copies_and_refused_events_do_not_count() -> None:
    webhook = Webhook(limits=WebhookLimits(pending=2))
    webhook.ledger.answers = {
        "c": RecordResult.DUPLICATE,
        "f": RecordResult.DUPLICATE_OF_FAILED,
        "o": RecordResult.CONFLICT,
    }
    for one in ("c", "f", "o", "c"):
        await webhook.send(event(id=one))
    assert (await webhook.send(event(id="1"))).status == 202


async def test_one_event_source_that_is_full_keeps_no_other_one_waiting() -> None:
    full = event_source(name="full", source="x:full", pending=10)
    webhook = Webhook(sources=[event_source(), full], limits=WebhookLimits(pending=10))
    reply = await webhook.send([event(), event(source="x:full")], BATCH)
    assert [one["status"] for one in reply.json] == [202, 429]
    assert reply.json[0]["source"] == SOURCE


async def test_other_limits_are_taken_over_under_way() -> None:
    webhook = Webhook(limits=WebhookLimits(pending=1))
    await webhook.send(event(id="1"))
    assert (await webhook.send(event(id="2"))).status == 429
    webhook.app.update_limits(WebhookLimits(pending=2, events=1.0))
    assert (await webhook.send(event(id="2"))).status == 202
    refused = await webhook.send(event(id="3"))
    assert refused.status == 429
    webhook.app.update_limits(WebhookLimits(pending=9, events=1.0))
    assert (await webhook.send(event(id="3"))).status == 202
    assert "more than 1 events a second" in (await webhook.send(event(id="4"))).json["error"]


async def test_a_controller_that_says_nothing_stops_nobody_for_ever() -> None:
    webhook = Webhook(limits=WebhookLimits(pending=1))
    await webhook.send(event(id="1"))
    webhook.clock.step(COUNT_LIFETIME - 1)
    assert (await webhook.send(event(id="2"))).status == 429
    webhook.clock.step(2)
    assert (await webhook.send(event(id="2"))).status == 202
    assert (await webhook.send(event(id="3"))).status == 429


async def test_what_no_controller_has_ever_looked_at_is_not_counted() -> None:
    webhook = Webhook([event_source(is_counted=False)], limits=WebhookLimits(pending=1))
    assert [(await webhook.send(event(id=one))).status for one in "123"] == [202] * 3
    seen(webhook, 0)
    assert [(await webhook.send(event(id=one))).status for one in "45"] == [202, 429]


@pytest.mark.parametrize(("status", "is_counted"), [(None, False), ({}, False), ({"observedGeneration": 1}, True)])
def test_a_controller_that_counts_has_left_its_mark(status: Any, is_counted: bool) -> None:
    assert read_event_source({**made_event_source(), "status": status}).is_counted is is_counted


async def test_event_sources_that_are_no_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "FEW", 10)
    webhook = Webhook()
    known = webhook.app._intake
    known._cleanup_at = 10
    await webhook.send(event(id="0"))
    for number in range(30):
        known._sources = ListedSources(event_source(), event_source(name=f"n{number}", source="x:y"))
        assert (await webhook.send(event(id=f"{number}", source="x:y"))).status == 202
    assert len(known._buckets) <= 10 and len(known._backlogs._counts) <= 10
    assert ("default", "training") in known._buckets


@pytest.mark.parametrize("pending", [None, "7", -1, [], 1.5])
def test_a_number_that_is_none_counts_as_nothing(pending: Any) -> None:
    assert pending_of({"status": {"pending": pending}}) == 0
