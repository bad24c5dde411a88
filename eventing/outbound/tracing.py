"""Exports spans to an OpenTelemetry collector. Import it only if one is configured: the import takes 0.25 s.

The SDK reads its own environment variables (endpoint, headers, sampler, resource). A thread sends spans by OTLP over
HTTP; spans that do not fit into its queue are dropped.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from clusters.net.otlp.export import make_resource
from eventing.outbound.spans import Span

SERVICE: Final = "knodel"
_CONTEXT: Final = TraceContextTextMapPropagator()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OtelSpans:
    """`spans.Spans` over the SDK; passes spans to `processor`."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._provider = TracerProvider(resource=make_resource(SERVICE), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(SERVICE)

    def record(self, span: Span) -> None:
        """Enqueue one span. An invalid traceparent starts a new trace (W3C Trace Context §4.3)."""
        parent = _CONTEXT.extract({"traceparent": span.traceparent})
        started = self._tracer.start_span(
            span.name, parent, SpanKind.CONSUMER, dict(span.attributes), start_time=_nanoseconds(span.start)
        )
        for event in span.events:
            started.add_event(event.name, dict(event.attributes), _nanoseconds(event.at))
        if span.error:
            started.set_status(Status(StatusCode.ERROR, span.error))
        started.end(_nanoseconds(span.end))

    def close(self) -> None:
        """Send the remaining spans; blocks at most as long as the collector does."""
        self._provider.shutdown()


def _nanoseconds(at: datetime) -> int:
    """Return the time in nanoseconds since 1970, the SDK's unit."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
