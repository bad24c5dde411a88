"""A caller over gRPC that does not read is found by a ping, and what was kept for it is free again."""

from __future__ import annotations

import asyncio

from serving.modelserver.base.limits import MEBIBYTE, ServerLimits
from tests.serving.modelserver.deaf import wired
from tests.serving.modelserver.grpc_parts import channel_to, floats, infer, serving
from tests.serving.modelserver.test_grpc_backpressure import LARGE, is_answered
from tests.support import models
from tests.support.wait import eventually

LIMITS = ServerLimits(unread_responses=MEBIBYTE, ping=1.0, pong=1.0)


async def test_a_caller_that_does_not_read_its_answer_is_cut_off() -> None:
    async with (
        serving(models.slow(), limits=LIMITS) as parts,
        channel_to(parts) as other,
        wired(parts.port) as (wire, channel),
    ):
        call = asyncio.ensure_future(infer(channel, floats(*[1.0] * LARGE), timeout=60.0))
        await eventually(lambda: parts.busy()[0] == 1)
        wire.turn_deaf()
        await eventually(lambda: parts.busy()[0] == 0)
        assert not await is_answered(other)
        await eventually(lambda: is_answered(other))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
