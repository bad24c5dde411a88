"""Spans of gRPC calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.execution.slot_queue import SlotQueue
from serving.modelserver.grpc.server import GrpcServer
from serving.modelserver.observe.grpc_tracing import NAME as SPAN
from serving.modelserver.observe.grpc_tracing import TracingInterceptor
from serving.modelserver.observe.tracing import TracedInference, Tracing
from tests.serving.modelserver.grpc_parts import HOST, NAME, PATIENCE, REVISION, SERVICE, Parts, asked, floats, refused
from tests.support import models
from tests.support.wait import eventually

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def channel(spans: InMemorySpanExporter) -> AsyncIterator[grpc.aio.Channel]:
    """Return a channel to a tracing server of FP32 x [n] → y = 2x."""
    tracing = Tracing(SimpleSpanProcessor(spans))
    tracing.assign(NAME, REVISION)
    loop = asyncio.get_running_loop()
    parts = Parts(slots=4, queue=10, timeout=PATIENCE, limits=ServerLimits(), holds=False)
    interceptors = [TracingInterceptor(tracing)]
    parts.server = GrpcServer(parts.lifecycle, parts.pending, parts.budget, parts.limits, interceptors=interceptors)
    slots = SlotQueue(4, 10, parts.stats)
    parts.inference = TracedInference(tracing, parts.lifecycle, slots, parts.workers, PATIENCE, loop)
    parts.assign()
    parts.load(models.double())
    port = await parts.server.start(HOST, 0)
    async with grpc.aio.insecure_channel(f"{HOST}:{port}") as made:
        yield made
    await parts.server.close()
    parts.workers.close()


def call(channel: grpc.aio.Channel, request: Any, method: str = "ModelInfer") -> Any:
    content = request if isinstance(request, bytes) else request.SerializeToString()
    metadata = (("traceparent", PARENT),)
    return channel.unary_unary(f"/{SERVICE}/{method}")(content, timeout=PATIENCE, metadata=metadata)


async def finished(spans: InMemorySpanExporter, count: int) -> dict[str, Any]:
    """Return all spans by name once there are `count`."""
    await eventually(lambda: len(spans.get_finished_spans()) == count)
    return {span.name: span for span in spans.get_finished_spans()}


async def test_a_call_its_queue_and_its_inference_are_spans_of_the_callers_trace(
    channel: grpc.aio.Channel, spans: InMemorySpanExporter
) -> None:
    begun = call(channel, asked(floats(1.0)))
    await begun
    found = await finished(spans, 3)
    request = found[SPAN]
    assert {f"{span.context.trace_id:032x}" for span in found.values()} == {TRACE_ID}
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331"
    assert found["queue"].parent.span_id == found["inference"].parent.span_id == request.context.span_id
    assert dict(await begun.initial_metadata())["traceparent"] == f"00-{TRACE_ID}-{request.context.span_id:016x}-01"
    assert dict(request.attributes)["rpc.grpc.status_code"] == 0
    assert dict(await begun.trailing_metadata())["knodel-revision"] == REVISION


async def test_a_fault_of_the_callers_is_told_and_is_no_error_of_the_span(
    channel: grpc.aio.Channel, spans: InMemorySpanExporter
) -> None:
    error = await refused(call(channel, asked(floats(1.0, name="unknown"))))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    request = (await finished(spans, 3))[SPAN]
    assert dict(request.attributes)["rpc.grpc.status_code"] == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert request.status.is_unset
    assert not request.events


async def test_questions_have_no_spans(channel: grpc.aio.Channel, spans: InMemorySpanExporter) -> None:
    begun = call(channel, b"", "ServerLive")
    await begun
    assert "traceparent" not in dict(await begun.initial_metadata())
    assert not spans.get_finished_spans()
