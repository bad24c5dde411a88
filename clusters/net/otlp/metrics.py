"""The metrics of a page for Prometheus, sent to an OpenTelemetry collector. Import it only if one is configured.

The families are the same as those of the page, so no metric is declared twice. A thread asks the event loop for them,
and sends them. Names stay those of the page; the unit follows from the suffix of the name.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from opentelemetry.sdk.metrics import Exemplar as OtlpExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as OtlpHistogram
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from clusters.net.exposition import Buckets, Exemplar, Families, Family, Histogram
from clusters.net.otlp.export import MetricsExporter

log = logging.getLogger(__name__)

UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {"_seconds": "s", "_seconds_total": "s", "_bytes": "By", "_bytes_total": "By", "_percent": "%", "_ratio": "1"}
)
"""Units in the notation of UCUM, by the suffix of a metric's name."""
COLLECT_TIMEOUT: Final = 10.0  # s in which the event loop must answer
_SCOPE: Final = "knodel"
_NANOSECONDS: Final = 1_000_000_000


class PeriodicMetrics:
    """Exports the families of a process every `interval` seconds, and once more when it is closed."""

    def __init__(
        self, families: Callable[[], Families], resource: Resource, exporter: MetricsExporter, loop: AbstractEventLoop,
        interval: float, clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self._families = families
        self._resource = resource
        self._exporter = exporter
        self._loop = loop
        self._interval = interval
        self._clock = clock
        self._start = clock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="knodel-metrics-export", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Export a last time, within `timeout` seconds; blocks, so call it outside of the event loop."""
        self._stop.set()
        self._thread.join(timeout)
        self._exporter.shutdown()

    def _run(self) -> None:
        while True:
            is_last = self._stop.wait(self._interval)
            try:
                found = asyncio.run_coroutine_threadsafe(self._collect(), self._loop).result(COLLECT_TIMEOUT)
                self._exporter.export(metrics_data(found, self._resource, self._start, self._clock()))
            except Exception:  # a metric that cannot be read must not end the export of all others for good
                log.exception("metrics are not exported")
            if is_last:
                return

    async def _collect(self) -> Families:
        return list(self._families())


def metrics_data(families: Families, resource: Resource, start: int, now: int) -> MetricsData:
    """Return the families in the form of OTLP; times in nanoseconds since 1970. Pure."""
    metrics = [_metric(family, start, now) for family in families]
    scope = ScopeMetrics(InstrumentationScope(_SCOPE), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def unit_of(name: str) -> str:
    """Return the unit of a metric by the suffix of its name, empty for a number of things."""
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")


def _metric(family: Family | Histogram, start: int, now: int) -> Metric:
    data: Gauge | Sum | OtlpHistogram
    cumulative = AggregationTemporality.CUMULATIVE
    if isinstance(family, Histogram):
        points = [_histogram_point(one, family, start, now) for one in family.samples]
        data = OtlpHistogram(points, cumulative)
    else:
        numbers = [NumberDataPoint(dict(labels), start, now, value) for labels, value in family.samples]
        data = Sum(numbers, cumulative, is_monotonic=True) if family.type == "counter" else Gauge(numbers)
    return Metric(family.name, family.help, unit_of(family.name), data)


def _histogram_point(buckets: Buckets, family: Histogram, start: int, now: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        dict(buckets.labels), start, now, count=sum(buckets.counts), sum=buckets.sum,
        bucket_counts=list(buckets.counts), explicit_bounds=[float(bound) for bound in family.bounds],
        min=None, max=None,  # type: ignore[arg-type]  # unknown, which OTLP allows and the SDK's own class does not say
        exemplars=[*_exemplars(buckets)],
    )  # fmt: skip


def _exemplars(buckets: Buckets) -> Iterator[OtlpExemplar]:
    kept: list[Exemplar] = [one for one in buckets.exemplars if one is not None]
    for one in kept:
        at = int(one.at * _NANOSECONDS)
        yield OtlpExemplar({}, one.value, at, span_id=int(one.span_id, 16), trace_id=int(one.trace_id, 16))
