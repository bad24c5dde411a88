"""gRPC responses that clients do not read: they are counted, and the memory of the server stays bounded."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from serving.modelserver.base.limits import MEBIBYTE, ServerLimits
from tests.serving.modelserver.deaf import wired
from tests.serving.modelserver.grpc_parts import asked, begin, channel_to, floats, infer, refused, serving
from tests.support import models
from tests.support.wait import eventually

LARGE = 2 * MEBIBYTE
"""Numbers of 4 bytes: more than a connection holds on its way."""
LIMITS = ServerLimits(unread_responses=MEBIBYTE)


async def is_answered(channel: grpc.aio.Channel) -> bool:
    """Return whether an inference succeeds; otherwise too many responses are unread."""
    try:
        return bool((await infer(channel, floats(1.0))).outputs)
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        return False


async def test_with_many_answers_that_nobody_takes_there_are_no_inferences() -> None:
    async with serving(models.slow(), limits=LIMITS) as parts, channel_to(parts) as other:
        async with wired(parts.port) as (wire, channel):
            asked_for = [asyncio.ensure_future(infer(channel, floats(*[1.0] * LARGE))) for _ in range(2)]
            await eventually(lambda: parts.busy()[0] == 2)
            wire.turn_deaf()
            await eventually(lambda: parts.busy()[0] == 0)
            error = await refused(begin(other, "ModelInfer", asked(floats(1.0))))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "is unread" in (error.details() or "")
            await begin(other, "ServerLive", b"")
        await asyncio.gather(*asked_for, return_exceptions=True)
        assert await eventually(lambda: is_answered(other))
