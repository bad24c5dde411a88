"""Export to an OpenTelemetry collector: metrics as it receives them, and failures that are reported once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from clusters.net.exposition import Buckets, Exemplar, Families, Family, Histogram
from clusters.net.otlp.environment import DEFAULT_INTERVAL, ENDPOINT, InvalidTelemetry, Signal, export_interval, wants
from clusters.net.otlp.export import make_resource, span_processor
from clusters.net.otlp.metrics import unit_of
from clusters.net.otlp.starting import export_if_configured
from tests.serving.modelserver.collector import Collector, collecting
from tests.support.wait import eventually

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FAMILIES: Families = [
    Family("a_total", "counter", "Things.", (({"x": "1"}, 3.0), ({"x": "2"}, 4.0))),
    Family("b_bytes", "gauge", "Memory.", (({}, 0.5),)),
    Histogram(
        "c_seconds", "Times.", (0.5, 2), (Buckets({}, (3, 0, 1), 9.25, (Exemplar(TRACE, SPAN, 0.4, 1.5), None, None)),)
    ),
]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as running:
        monkeypatch.setenv(ENDPOINT, running.url)
        yield running


async def exported(collector: Collector, environ: dict[str, str]) -> Any:
    """Export the families until the collector has a request, and return its resource with the metrics."""
    made = export_if_configured(lambda: FAMILIES, "knodel", {ENDPOINT: collector.url, **environ})
    assert made is not None
    await asyncio.to_thread(made.close, 10.0)
    (post,) = collector.posts
    assert (post.path, post.headers["content-type"]) == ("/v1/metrics", "application/x-protobuf")
    (group,) = ExportMetricsServiceRequest.FromString(post.body).resource_metrics
    return group


async def test_the_families_of_the_page_are_the_metrics(collector: Collector) -> None:
    group = await exported(collector, {})
    found = {metric.name: metric for scope in group.scope_metrics for metric in scope.metrics}
    assert {name: (metric.WhichOneof("data"), metric.unit) for name, metric in found.items()} == {
        "a_total": ("sum", ""), "b_bytes": ("gauge", "By"), "c_seconds": ("histogram", "s"),
    }  # fmt: skip
    total = found["a_total"].sum
    assert total.is_monotonic and total.aggregation_temporality == 2  # cumulative
    assert [(point.attributes[0].value.string_value, point.as_double) for point in total.data_points] == [
        ("1", 3.0), ("2", 4.0),
    ]  # fmt: skip
    (times,) = found["c_seconds"].histogram.data_points
    assert (list(times.bucket_counts), list(times.explicit_bounds)) == ([3, 0, 1], [0.5, 2])
    assert (times.sum, times.count) == (9.25, 4)
    assert not times.HasField("min")
    (exemplar,) = times.exemplars
    assert (exemplar.trace_id.hex(), exemplar.span_id.hex(), exemplar.as_double) == (TRACE, SPAN, 0.4)
    names = {pair.key: pair.value.string_value for pair in group.resource.attributes}
    assert names["service.name"] == "knodel" and names["service.instance.id"]


async def test_metrics_are_exported_again_and_again(collector: Collector) -> None:
    environ = {ENDPOINT: collector.url, "OTEL_METRIC_EXPORT_INTERVAL": "100"}
    made = export_if_configured(lambda: FAMILIES, "knodel", environ)
    assert made is not None
    await eventually(lambda: len(collector.posts) >= 3)
    await asyncio.to_thread(made.close, 10.0)


async def test_a_dead_collector_is_reported_once_and_once_more_when_it_lives(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, collector: Collector
) -> None:
    caplog.set_level(logging.INFO)
    collector.status = 400  # at which the library does not try again
    processor = span_processor()
    provider = TracerProvider(resource=make_resource("m"), shutdown_on_exit=False)
    provider.add_span_processor(processor)

    def send() -> None:
        provider.get_tracer("test").start_span("one").end()
        processor.force_flush()

    for _ in range(3):
        await asyncio.to_thread(send)
    collector.status = 200
    for _ in range(2):
        await asyncio.to_thread(send)
    await asyncio.to_thread(provider.shutdown)

    lines = [record.getMessage() for record in caplog.records if "collector" in record.getMessage()]
    assert len(lines) == 2, lines
    assert lines[0].startswith("spans are not sent to the collector (") and "400" in lines[0]
    assert lines[0].endswith(f"check {ENDPOINT}")
    assert lines[1] == "spans are sent to the collector again"
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry.exporter")]


@pytest.mark.parametrize(
    ("environ", "traces", "metrics"),
    [
        ({}, False, False),
        ({ENDPOINT: "http://collector:4318"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318/v1/metrics"}, False, True),
        ({ENDPOINT: ""}, False, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({ENDPOINT: "http://collector:4318", "OTEL_METRICS_EXPORTER": "none"}, True, False),
    ],
)
def test_a_signal_is_on_where_the_environment_names_a_collector(
    environ: dict[str, str], traces: bool, metrics: bool
) -> None:
    assert (wants("traces", environ), wants("metrics", environ)) == (traces, metrics)


@pytest.mark.parametrize("signal", ["traces", "metrics"])
def test_a_protocol_that_is_not_spoken_is_refused(signal: Signal) -> None:
    with pytest.raises(InvalidTelemetry, match="OTEL_EXPORTER_OTLP_PROTOCOL='grpc'"):
        wants(signal, {ENDPOINT: "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


def test_the_interval_is_in_milliseconds() -> None:
    assert export_interval({}) == DEFAULT_INTERVAL
    assert export_interval({"OTEL_METRIC_EXPORT_INTERVAL": "500"}) == 0.5
    for text in ("soon", "nan", "0", "-5"):
        with pytest.raises(InvalidTelemetry, match="OTEL_METRIC_EXPORT_INTERVAL"):
            export_interval({"OTEL_METRIC_EXPORT_INTERVAL": text})


async def test_a_wrong_variable_keeps_no_process_from_its_work(caplog: pytest.LogCaptureFixture) -> None:
    environ = {ENDPOINT: "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert export_if_configured(lambda: FAMILIES, "knodel", environ) is None
    assert "no metrics are sent: OTEL_EXPORTER_OTLP_PROTOCOL='grpc'" in caplog.text


@pytest.mark.parametrize(
    ("name", "unit"),
    [("a_seconds_total", "s"), ("a_bytes", "By"), ("a_total", ""), ("a_percent", "%"), ("seconds", "")],
)
def test_the_unit_is_that_of_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit
