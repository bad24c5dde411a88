"""gRPC calls in the access log."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import grpc
import grpc.aio
import pytest

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.grpc.server import GrpcServer
from serving.modelserver.observe.access_log import AccessLog
from serving.modelserver.observe.grpc_access_log import AccessLogInterceptor
from tests.serving.modelserver.grpc_parts import HOST, PATIENCE, SERVICE, Parts, asked, floats, refused
from tests.serving.modelserver.grpc_parts import begin as call
from tests.support import models
from tests.support.wait import eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"
INFER = f"/{SERVICE}/ModelInfer"


class Logged:
    """A slow server of FP32 x [n] → y = 2x, and its access log."""

    def __init__(self, channel: grpc.aio.Channel, parts: Parts, out: io.StringIO) -> None:
        self.channel = channel
        self.parts = parts
        self._out = out

    async def lines(self, count: int) -> list[dict[str, Any]]:
        """Return all lines once there are `count`."""
        await eventually(lambda: self._out.getvalue().count("\n") >= count)
        return [json.loads(line) for line in self._out.getvalue().splitlines()]


@pytest.fixture
async def logged() -> AsyncIterator[Logged]:
    out = io.StringIO()
    log = AccessLog(1.0, out, lambda: 0.0)
    parts = Parts(slots=1, queue=10, timeout=PATIENCE, limits=ServerLimits(), holds=False)
    interceptor = AccessLogInterceptor(log, lambda: TRACE, monotonic)
    parts.server = GrpcServer(parts.lifecycle, parts.pending, parts.budget, parts.limits, interceptors=[interceptor])
    parts.assign()
    parts.load(models.slow())
    port = await parts.server.start(HOST, 0)
    async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:
        yield Logged(channel, parts, out)
    await parts.server.close()
    parts.workers.close()
    log.close(PATIENCE)


async def test_each_call_has_a_line_with_its_status(logged: Logged) -> None:
    await call(logged.channel, "ModelInfer", asked(floats(1.0)))
    await refused(call(logged.channel, "ModelInfer", asked(floats(1.0), model_name="other")))
    await call(logged.channel, "ServerLive", b"")
    lines = await logged.lines(3)
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("gRPC", INFER, grpc.StatusCode.OK.value[0]),
        ("gRPC", INFER, grpc.StatusCode.NOT_FOUND.value[0]),
        ("gRPC", f"/{SERVICE}/ServerLive", grpc.StatusCode.OK.value[0]),
    ]
    assert all(line["trace"] == TRACE and line["ms"] > 0 for line in lines)


async def test_a_caller_that_leaves_has_its_line(logged: Logged) -> None:
    begun = call(logged.channel, "ModelInfer", asked(floats(1.0)))
    await eventually(lambda: logged.parts.busy() == (1, 0))
    begun.cancel()
    (line,) = await logged.lines(1)
    assert line["status"] == grpc.StatusCode.CANCELLED.value[0]
