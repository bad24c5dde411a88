"""The messages of the gateway's local replies."""

from __future__ import annotations

from clusters.gateway.limits import GatewayLimits
from clusters.gateway.replies import replies


def messages(limits: GatewayLimits) -> str:
    return " | ".join(reply.message for reply in replies(limits))


def test_limits_are_named_as_they_are_set() -> None:
    assert "larger than the limit of 64 MiB" in messages(GatewayLimits())
    assert "larger than the limit of 1500 bytes" in messages(GatewayLimits(body_bytes=1500))
    assert "larger than 16 KiB or more than 50" in messages(GatewayLimits(header_kib=16, header_count=50))


def test_only_what_may_pass_asks_to_try_again() -> None:
    assert [reply.message for reply in replies(GatewayLimits()) if reply.headers] == [
        "the model cannot be reached now: try again"
    ]
