"""Readings of any container behind Knative's queue-proxy: it tells averages of its last period of one second.

`GET http://HOST:9090/metrics` with `Accept: application/protobuf` answers one message `Stat` (knative/serving
`pkg/autoscaler/metrics/stat.proto`, client `http_scrape_client.go`). From period to period its totals are added up
here: the uptime in it names the period, so one that is read twice counts once, and periods that nobody read are taken
for what those before and after them were. A request that came since the last period's end is not in it: `Sample.lag`.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from autoscaler.config import Sampling
from autoscaler.metrics.pages import Address, Pages
from autoscaler.metrics.stat import BadSample, NoSample, Sample, checked
from clusters.base.clock import Clock
from clusters.net.endpoints import Endpoint

METRICS_PORT: Final = 9090
"""`AutoscalingQueueMetricsPort` of knative/serving `pkg/networking/constants.go`."""
MEDIA_TYPE: Final = "application/protobuf"
MAX_BYTES: Final = 336
"""Six fields of ten bytes, a host name of 256, 20 to spare: Knative's own cap (CVE-2023-48713)."""
PERIOD: Final = 1.0
"""s that one report speaks of (`reportingPeriod` in `pkg/queue/sharedmain/main.go`)."""
STALE: Final = 10.0 * PERIOD
"""s after which a report that is told over and over is none: its queue-proxy counts no longer."""
LAG: Final = 1.5 * PERIOD
"""s: a report is up to one period old, and its ticker may be late on a busy node."""
LARGEST_AVERAGE: Final = 1e6  # requests in use, or a second; more is garbage
LARGEST_UPTIME: Final = 1e9  # s: 30 years
MOST_PODS: Final = 20_000  # remembered; the longest unread one goes first

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protobuf
_CONCURRENCY, _REQUESTS, _UPTIME = 2, 4, 6  # field numbers of Stat
_LONGEST_VARINT = 10  # bytes


@dataclass(frozen=True, slots=True)
class Report:
    """One period of one queue-proxy: requests in it on average, those that came a second, seconds since its start."""

    concurrency: float
    requests: float
    uptime: float


@dataclass(slots=True)
class _Totals:
    """A queue-proxy's sums up to the end of the period `last`, which was `heard` first then; `began` is its start.

    Both by the reader's clock.
    """

    last: Report
    began: float
    busy_seconds: float
    requests: float
    heard: float


class QueueProxyScraper:
    """A `MetricSource` of Pods that Knative made."""

    def __init__(self, clock: Clock, sampling: Sampling | None = None, port: int = METRICS_PORT) -> None:
        self._clock = clock
        self._port = port
        self._pages = Pages((sampling or Sampling()).timeout)
        self._totals: OrderedDict[str, _Totals] = OrderedDict()

    async def sample(self, endpoint: Endpoint) -> Sample:
        """The sums up to the last period's end. Raises NoSample, before the first period's end too; BadSample."""
        address = Address(endpoint.pod, endpoint.host, self._port)
        answer = await self._pages.get(address, "/metrics", MAX_BYTES, {"Accept": MEDIA_TYPE})
        if answer.content_type != MEDIA_TYPE:
            raise BadSample(f"queue-proxy answered {answer.content_type} instead of {MEDIA_TYPE}")
        report = read_report(answer.body)
        if report.uptime == 0.0:
            raise NoSample(f"{endpoint.pod}: queue-proxy has not counted for {PERIOD:g} s yet")
        totals = self._add(endpoint.pod, report)
        at = totals.began + report.uptime
        return checked(Sample(at, totals.busy_seconds, totals.requests, report.concurrency, 0.0, lag=LAG))

    async def close(self) -> None:
        """Close all connections."""
        await self._pages.close()

    def _add(self, pod: str, report: Report) -> _Totals:
        known, now = self._totals.get(pod), self._clock.monotonic()
        if known is None or report.uptime < known.last.uptime:  # another queue-proxy: the sums begin anew
            known = self._totals[pod] = _Totals(report, now - report.uptime, 0.0, 0.0, now)
            if len(self._totals) > MOST_PODS:
                self._totals.popitem(last=False)
        elif report.uptime > known.last.uptime:
            integrate(known, report)
            known.heard = now
        elif now - known.heard > STALE:
            raise BadSample(f"{pod}: queue-proxy told the same period {now - known.heard:.0f} s ago: it is stale")
        self._totals.move_to_end(pod)
        return known


def integrate(totals: _Totals, report: Report) -> None:
    """Add what happened since the last report; what lies between the two periods was as their mean."""
    before, elapsed = totals.last, report.uptime - totals.last.uptime
    period = min(elapsed, PERIOD)
    between = (elapsed - period) / 2.0
    totals.busy_seconds += report.concurrency * period + (before.concurrency + report.concurrency) * between
    totals.requests += report.requests * period + (before.requests + report.requests) * between
    totals.last = report


def read_report(body: bytes) -> Report:
    """The report in a message `Stat`; fields that are not there are 0, as proto3 has it. Raises BadSample."""
    found = dict.fromkeys((_CONCURRENCY, _REQUESTS, _UPTIME), 0.0)
    for number, value in _doubles(body):
        if number in found:
            found[number] = value
    limits = {_CONCURRENCY: LARGEST_AVERAGE, _REQUESTS: LARGEST_AVERAGE, _UPTIME: LARGEST_UPTIME}
    for number, most in limits.items():
        if not (math.isfinite(found[number]) and 0.0 <= found[number] <= most):
            raise BadSample(f"field {number} of queue-proxy's Stat is {found[number]}: expected 0 to {most:g}")
    return Report(found[_CONCURRENCY], found[_REQUESTS], found[_UPTIME])


def _doubles(body: bytes) -> Iterator[tuple[int, float]]:
    """Field numbers and values of all doubles; other fields are passed over. Raises BadSample."""
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
            raise BadSample(f"queue-proxy's Stat has a field of wire type {wire}, which protobuf has not")
        if position + size > len(body):
            raise BadSample("queue-proxy's Stat ends in the middle of a field")
        if wire == _FIXED64:
            yield number, struct.unpack_from("<d", body, position)[0]
        position += size


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """The number that begins at `position`, and where the next thing begins. Raises BadSample."""
    value = 0
    for place, byte in enumerate(body[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position + place + 1
    raise BadSample("queue-proxy's Stat ends in the middle of a number")
