"""Readings of any container behind Knative's queue-proxy, which reports averages of its last period of one second.

`GET http://HOST:9090/metrics` with `Accept: application/protobuf` returns one message `Stat` (knative/serving
`pkg/autoscaler/metrics/stat.proto`, client `http_scrape_client.go`). Totals are accumulated here from period to period.
The uptime in the message identifies the period, so a repeated report counts once. Missed periods are interpolated from
the reports before and after them. A report omits requests that came after the end of its period: `Sample.lag`.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from autoscaler.config import Sampling
from autoscaler.metrics.pod_http import PodAddress, PodHttpClient
from autoscaler.metrics.stat import BadSample, NoSample, Sample, checked
from clusters.base.clock import Clock
from clusters.net.endpoints import Endpoint

METRICS_PORT: Final = 9090
"""`AutoscalingQueueMetricsPort` of knative/serving `pkg/networking/constants.go`."""
MEDIA_TYPE: Final = "application/protobuf"
MAX_BYTES: Final = 336
"""Six fields of ten bytes, a host name of 256, and 20 spare bytes: Knative's own limit (CVE-2023-48713)."""
PERIOD: Final = 1.0
"""Seconds that one report covers (`reportingPeriod` in `pkg/queue/sharedmain/main.go`)."""
STALE: Final = 10.0 * PERIOD
"""Seconds after which a repeated report is rejected: its queue-proxy no longer counts."""
LAG: Final = 1.5 * PERIOD
"""Seconds: a report is up to one period old, and its ticker may be late on a busy node."""
LARGEST_AVERAGE: Final = 1e6  # concurrent requests, or requests per second; larger values are rejected
LARGEST_UPTIME: Final = 1e9  # s: 30 years
MOST_PODS: Final = 20_000  # remembered; the least recently read one is dropped first

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protobuf
_CONCURRENCY, _REQUESTS, _UPTIME = 2, 4, 6  # field numbers of Stat
_LONGEST_VARINT = 10  # bytes


@dataclass(frozen=True, slots=True)
class QueueProxyReport:
    """One period of one queue-proxy: average concurrency, requests per second, and seconds since its start."""

    concurrency: float
    requests: float
    uptime: float


@dataclass(slots=True)
class _Totals:
    """Totals of a queue-proxy up to the end of the period `last`, which was first read at `read_at`; `began` is its
    start.

    Both times are by the reader's clock.
    """

    last: QueueProxyReport
    began: float
    busy_seconds: float
    requests: float
    read_at: float


class QueueProxyScraper:
    """A `MetricSource` for any Pod that Knative created."""

    def __init__(self, clock: Clock, sampling: Sampling | None = None, port: int = METRICS_PORT) -> None:
        self._clock = clock
        self._port = port
        self._pages = PodHttpClient((sampling or Sampling()).timeout)
        self._totals: OrderedDict[str, _Totals] = OrderedDict()

    async def sample(self, endpoint: Endpoint) -> Sample:
        """Return the totals up to the end of the last period. Raises NoSample, also before the first period has ended;
        BadSample.
        """
        address = PodAddress(endpoint.pod, endpoint.host, self._port)
        answer = await self._pages.get(address, "/metrics", MAX_BYTES, {"Accept": MEDIA_TYPE})
        if answer.content_type != MEDIA_TYPE:
            raise BadSample(f"queue-proxy answered {answer.content_type} instead of {MEDIA_TYPE}")
        report = read_report(answer.body)
        if report.uptime == 0.0:
            raise NoSample(f"{endpoint.pod}: queue-proxy has not counted for {PERIOD:g} s yet")
        pod, now = endpoint.pod, self._clock.monotonic()
        totals = self._totals.get(pod)
        if totals is None or report.uptime < totals.last.uptime:  # a new queue-proxy process
            totals = self._totals[pod] = _Totals(report, now - report.uptime, 0.0, 0.0, now)
            if len(self._totals) > MOST_PODS:
                self._totals.popitem(last=False)
        elif report.uptime > totals.last.uptime:
            integrate(totals, report)
            totals.read_at = now
        elif now - totals.read_at > STALE:
            raise BadSample(f"{pod}: queue-proxy has repeated one report for {now - totals.read_at:.0f} s: it is stale")
        self._totals.move_to_end(pod)
        at = totals.began + report.uptime
        return checked(Sample(at, totals.busy_seconds, totals.requests, report.concurrency, 0.0, lag=LAG))

    async def close(self) -> None:
        """Close all connections."""
        await self._pages.close()


def integrate(totals: _Totals, report: QueueProxyReport) -> None:
    """Add the requests since the last report; the time between the two periods counts as their mean."""
    before, elapsed = totals.last, report.uptime - totals.last.uptime
    period = min(elapsed, PERIOD)
    between = (elapsed - period) / 2.0
    totals.busy_seconds += report.concurrency * period + (before.concurrency + report.concurrency) * between
    totals.requests += report.requests * period + (before.requests + report.requests) * between
    totals.last = report


def read_report(body: bytes) -> QueueProxyReport:
    """Return the report in a message `Stat`; missing fields are 0, as in proto3. Raises BadSample."""
    found = dict.fromkeys((_CONCURRENCY, _REQUESTS, _UPTIME), 0.0)
    for number, value in _doubles(body):
        if number in found:
            found[number] = value
    limits = {_CONCURRENCY: LARGEST_AVERAGE, _REQUESTS: LARGEST_AVERAGE, _UPTIME: LARGEST_UPTIME}
    for number, most in limits.items():
        if not (math.isfinite(found[number]) and 0.0 <= found[number] <= most):
            raise BadSample(f"field {number} of queue-proxy's Stat is {found[number]}: expected 0 to {most:g}")
    return QueueProxyReport(found[_CONCURRENCY], found[_REQUESTS], found[_UPTIME])


def _doubles(body: bytes) -> Iterator[tuple[int, float]]:
    """Yield field numbers and values of all doubles, skipping other fields. Raises BadSample."""
    position = 0
    while position < len(body):
        tag, position = _varint(body, position)
        number, wire = tag >> 3, tag & 0b111
        if wire == _VARINT:
            _, position = _varint(body, position)
            continue
        if wire == _BYTES:
            size, position = _varint(body, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise BadSample(f"queue-proxy's Stat has a field of the unknown wire type {wire}")
        if position + size > len(body):
            raise BadSample("queue-proxy's Stat ends in the middle of a field")
        if wire == _FIXED64:
            yield number, struct.unpack_from("<d", body, position)[0]
        position += size


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, and the position after it. Raises BadSample."""
    value = 0
    for place, byte in enumerate(body[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position + place + 1
    raise BadSample("queue-proxy's Stat ends in the middle of a number")
