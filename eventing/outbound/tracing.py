"""Spans to an OpenTelemetry collector: imported only where one is named, for it takes a quarter of a second.

The SDK reads its own variables (endpoint, headers, sampler, resource). Spans leave by OTLP over HTTP in a thread of its
own, and what its queue does not hold is dropped.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from eventing.outbound.spans import Span

SERVICE: Final = "knodel"
_CONTEXT: Final = TraceContextTextMapPropagator()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OtelSpans:
    """`spans.Spans` over the SDK; spans go to `processor`."""

    def __init__(self, processor: SpanProcessor) -> None:
        said = OTELResourceDetector().detect().attributes
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": SERVICE, **said}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(SERVICE)

    def record(self, span: Span) -> None:
        """A traceparent that is none begins a trace of its own (W3C Trace Context §4.3)."""
        parent = _CONTEXT.extract({"traceparent": span.traceparent})
        made = self._tracer.start_span(
            span.name, parent, SpanKind.CONSUMER, dict(span.attributes), start_time=_nanoseconds(span.start)
        )
        for mark in span.marks:
            made.add_event(mark.name, dict(mark.attributes), _nanoseconds(mark.at))
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(_nanoseconds(span.end))

    def close(self) -> None:
        """Send what is left; blocks, at worst as long as the collector does."""
        self._provider.shutdown()


def exporting() -> SpanProcessor:
    """To the collector that the environment names."""
    return BatchSpanProcessor(OTLPSpanExporter())


def _nanoseconds(at: datetime) -> int:
    """Since 1970; the SDK's unit."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
