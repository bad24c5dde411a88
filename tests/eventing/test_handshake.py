"""OPTIONS: the validation handshake of the CloudEvents webhook specification."""

from __future__ import annotations

from typing import Any

import pytest

from eventing.limits import WebhookLimits
from tests.eventing.webhook import Webhook


async def shake(**headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await Webhook(limits=WebhookLimits(requests=10)).send(headers=named, method="OPTIONS", sign=False)


async def test_an_origin_that_asks_may_send_at_our_rate() -> None:
    reply = await shake(webhook_request_origin="eventemitter.example.com", webhook_request_rate="*")

    assert reply.status == 200
    assert reply.headers["webhook-allowed-origin"] == "eventemitter.example.com"
    assert reply.headers["webhook-allowed-rate"] == "600"
    assert reply.headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize(("asked", "allowed"), [("120", "120"), ("601", "600")])
async def test_no_more_is_allowed_than_was_asked_for(asked: str, allowed: str) -> None:
    reply = await shake(webhook_request_origin="a.example", webhook_request_rate=asked)

    assert reply.headers["webhook-allowed-rate"] == allowed


async def test_without_an_origin_only_the_methods_are_told() -> None:
    reply = await shake()

    assert (reply.status, reply.headers["allow"]) == (204, "POST, OPTIONS")
    assert "webhook-allowed-origin" not in reply.headers


@pytest.mark.parametrize("origin", ["a b", "a\x01", "-", "x" * 300])
async def test_an_origin_that_is_no_host_is_400(origin: str) -> None:
    assert (await shake(webhook_request_origin=origin)).status == 400


async def test_a_rate_that_is_none_is_400() -> None:
    assert (await shake(webhook_request_origin="a.example", webhook_request_rate="many")).status == 400
