"""Trace inferences over gRPC. Imported only when a trace collector is configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from opentelemetry.trace import Status, StatusCode

from serving.engines.base.trace_context import HEADER
from serving.modelserver.grpc.library import grpc
from serving.modelserver.grpc.service import SERVICE
from serving.modelserver.grpc.statuses import FAULTS, code_of
from serving.modelserver.observe.grpc_access_log import Behaviour, call_and_observe
from serving.modelserver.observe.tracing import CONTEXT_HEADERS, Tracing, parent_header

METHOD: Final = "ModelInfer"
NAME: Final = f"{SERVICE}/{METHOD}"
ATTRIBUTES: Final = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": METHOD}


class TracingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Creates a span for each inference, and sends its `traceparent` in the initial metadata of the response."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Return the method's handler, traced if it is the inference method."""
        handler = await continuation(details)
        if handler is None or details.method != f"/{NAME}":
            return handler
        behaviour: Behaviour = handler.stream_unary

        async def traced(messages: Any, context: Any) -> Any:
            wanted = {name.decode() for name in CONTEXT_HEADERS}
            headers = {key: value for key, value in context.invocation_metadata() or () if key in wanted}
            with self._tracing.request_span(NAME, headers, ATTRIBUTES) as span:
                parent = parent_header(span)
                if parent:
                    await context.send_initial_metadata(((HEADER.decode(), parent),))

                def set_status(status: Any) -> None:
                    span.set_attribute("rpc.grpc.status_code", code_of(status))
                    if status in FAULTS:
                        span.set_status(Status(StatusCode.ERROR))

                return await call_and_observe(behaviour, messages, context, set_status)

        return grpc.stream_unary_rpc_method_handler(traced)
