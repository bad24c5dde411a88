"""Spans of inferences over gRPC; used only where a collector of traces is named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from opentelemetry.trace import Span, Status, StatusCode

from serving.modelserver.grpc.library import grpc
from serving.modelserver.grpc.service import SERVICE
from serving.modelserver.grpc.statuses import FAULTS, code_of
from serving.modelserver.observe.grpc_observed import Behaviour, told
from serving.modelserver.observe.tracing import CARRIED, HEADER, Tracing, parent_header

METHOD: Final = "ModelInfer"
NAME: Final = f"{SERVICE}/{METHOD}"
ATTRIBUTES: Final = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": METHOD}


class TracingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """A span for each inference; its `traceparent` is in the initial metadata of the answer."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The method's handler, traced if it is the one that infers."""
        handler = await continuation(details)
        if handler is None or details.method != f"/{NAME}":
            return handler
        return grpc.stream_unary_rpc_method_handler(self._traced(handler.stream_unary))

    def _traced(self, behaviour: Behaviour) -> Behaviour:
        async def traced(messages: Any, context: Any) -> Any:
            with self._tracing.request(NAME, _carried(context), ATTRIBUTES) as span:
                parent = parent_header(span)
                if parent:
                    await context.send_initial_metadata(((HEADER.decode(), parent),))
                return await told(behaviour, messages, context, partial(_tell, span))

        return traced


def _carried(context: Any) -> dict[str, str]:
    wanted = {name.decode() for name in CARRIED}
    return {key: value for key, value in context.invocation_metadata() or () if key in wanted}


def _tell(span: Span, status: Any) -> None:
    span.set_attribute("rpc.grpc.status_code", code_of(status))
    if status in FAULTS:
        span.set_status(Status(StatusCode.ERROR))
