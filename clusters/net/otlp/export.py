"""Exporters of the OpenTelemetry SDK, whose failures are reported once. Import it only if a collector is configured.

The import takes 0.25 s. Exports run in threads, and spans that do not fit into their queue are dropped, so no request
waits for a collector.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from clusters.net.otlp.environment import ENDPOINT

log = logging.getLogger(__name__)

_LIBRARY: Final = "opentelemetry.exporter.otlp.proto.http"
_UNKNOWN: Final = "no reason given"


class _FailureReport(logging.Filter):
    """Logs one line when exports begin to fail, and one when they succeed again, in place of the library's own lines.

    The library logs each attempt. This filter of its logger keeps the last text, and drops the line.
    """

    def __init__(self, what: str, library: str) -> None:
        super().__init__()
        self._what = what
        self._reason = _UNKNOWN
        self._fails = False
        self._library = logging.getLogger(f"{_LIBRARY}.{library}")
        self._library.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the text of a line of the library, and drop the line."""
        self._reason = record.getMessage()
        return False

    def record(self, succeeded: bool) -> None:
        """Record the result of one export."""
        if succeeded and self._fails:
            log.info("%s are sent to the collector again", self._what)
        elif not succeeded and not self._fails:
            log.warning("%s are not sent to the collector (%s): check %s", self._what, self._reason, ENDPOINT)
        self._fails = not succeeded

    def close(self) -> None:
        """Leave the lines of the library alone again."""
        self._library.removeFilter(self)


class ReportedSpans(SpanExporter):
    """An exporter of spans."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._report = _FailureReport("spans", "trace_exporter")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch of spans; blocks."""
        result = self._inner.export(spans)
        self._report.record(result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """End an export in progress and accept no more."""
        self._inner.shutdown()
        self._report.close()


class MetricsExporter:
    """An exporter of metrics."""

    def __init__(self) -> None:
        self._inner = OTLPMetricExporter()
        self._report = _FailureReport("metrics", "metric_exporter")

    def export(self, data: MetricsData) -> None:
        """Send metrics; blocks."""
        self._report.record(self._inner.export(data) is MetricExportResult.SUCCESS)

    def shutdown(self) -> None:
        """End an export in progress and accept no more."""
        self._inner.shutdown()
        self._report.close()


def span_processor() -> SpanProcessor:
    """Return a processor that sends spans in batches to the collector of the environment. Raises ValueError."""
    return BatchSpanProcessor(ReportedSpans(OTLPSpanExporter()))


def make_resource(service: str, version: str = "", environ: Mapping[str, str] = os.environ) -> Resource:
    """Return the resource of a process. Attributes from OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME come first.

    `service.instance.id` distinguishes the replicas of one service: the name of the Pod, or host and process.
    """
    own: dict[str, Any] = {"service.name": service, **({"service.version": version} if version else {})}
    own["service.instance.id"] = environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
    if namespace := environ.get("POD_NAMESPACE"):
        own["service.namespace"] = namespace
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})
