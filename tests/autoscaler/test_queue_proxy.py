"""Readings of other containers: averages of queue-proxy become totals."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config import Sampling
from autoscaler.metrics.collector import MetricCollector, RevisionReading, ScrapeTarget
from autoscaler.metrics.pod_http import PodAddress
from autoscaler.metrics.queue_proxy import LAG, MAX_BYTES, PERIOD, STALE, QueueProxyScraper, read_report
from autoscaler.metrics.source import NoSample
from autoscaler.metrics.stat import BadSample
from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint
from tests.autoscaler.pages import Behaviour, Server, answer, hang, pour, serving, slam
from tests.support.clock import SteppedClock

KEY = Key("default", "plain-00001")
RECORDED = bytes.fromhex(
    "0a276d6167696b612d30303030312d6465706c6f796d656e742d6366393734643766642d626a6739623120d3dfed6f002640"
)
"""Of Knative 0.50: a name, 11 s of uptime, and no request, which proto3 leaves out."""
SHORT = Sampling(tick=0.3, timeout=0.2)


def stat(concurrency: float = 0.0, requests: float = 0.0, uptime: float = 0.0, pod: str = "plain-1") -> bytes:
    """Return a message Stat; proto3 omits zeros."""
    name = pod.encode()
    doubles = {2: concurrency, 4: requests, 6: uptime}
    fields = [bytes([number << 3 | 1]) + struct.pack("<d", value) for number, value in doubles.items() if value]
    return bytes([0x0A, len(name)]) + name + b"".join(fields)


def proxy(concurrency: float = 0.0, requests: float = 0.0, uptime: float = 0.0) -> Behaviour:
    return answer(stat(concurrency, requests, uptime), media_type="application/protobuf")


class Scene:
    """A queue-proxy and its scraper, with one clock for both."""

    def __init__(self, server: Server) -> None:
        self.clock = SteppedClock()
        self.clock.step(1_000.0)
        self.server = server
        self.source = QueueProxyScraper(self.clock, SHORT, server.port)
        self.collector = MetricCollector(self.source, Sampling())
        self.endpoints = (Endpoint("default/plain-1", server.host, 1, 2),)

    async def read(self) -> RevisionReading | None:
        return (await self.collector.read({KEY: ScrapeTarget(self.endpoints, 10.0)})).get(KEY)

    async def passes(
        self, concurrency: float, requests: float, uptime: float, after: float = 1.0
    ) -> RevisionReading | None:
        self.clock.step(after)
        self.server.behave = proxy(concurrency, requests, uptime)
        return await self.read()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with serving(proxy(0.0, 0.0, 10.0)) as server:
        made = Scene(server)
        yield made
        await made.source.close()


def test_a_message_as_queue_proxy_writes_it_is_read() -> None:
    report = read_report(RECORDED)
    assert (report.concurrency, report.requests) == (0.0, 0.0)
    assert report.uptime == pytest.approx(11.0, abs=0.01)
    assert stat(uptime=report.uptime, pod="magika-00001-deployment-cf974d7fd-bjg9b") == RECORDED
    assert len(RECORDED) <= MAX_BYTES


def test_fields_that_a_later_knative_adds_are_passed_over() -> None:
    later = b"\x38\xe8\x07" + b"\x42\x03abc" + b"\x4d\x00\x00\x80\x3f"
    assert read_report(later + stat(1.0, 2.0, 3.0) + later).concurrency == 1.0


@pytest.mark.bad_input("scrape-values")
@pytest.mark.fault("A3")
@pytest.mark.parametrize(
    "body",
    [
        stat(float("nan"), 1.0, 1.0),
        stat(float("inf"), 1.0, 1.0),
        stat(-1.0, 1.0, 1.0),
        stat(1e308, 1.0, 1.0),
        stat(1.0, 1e9, 1.0),
        stat(1.0, 1.0, 1e12),
        stat(1.0, 1.0, 1.0)[:-1],
        b"\x0a\xff",
        b"\x0a" + b"\xff" * 20,
        b"\x13abc",
        b"busy",
        b"# HELP queue_average",
    ],
)
def test_what_is_no_reading_is_rejected(body: bytes) -> None:
    with pytest.raises(BadSample):
        read_report(body)


@pytest.mark.fault("A3")
@given(st.binary(max_size=MAX_BYTES))
def test_any_bytes_are_a_reading_or_rejected(body: bytes) -> None:
    with contextlib.suppress(BadSample):
        report = read_report(body)
        assert 0.0 <= report.concurrency <= 1e6


async def test_it_is_asked_as_knatives_own_scraper_asks(scene: Scene) -> None:
    await scene.source.sample(scene.endpoints[0])
    (request,) = scene.server.requests
    assert request.startswith(b"GET /metrics HTTP/1.1\r\n")
    assert b"accept: application/protobuf\r\n" in request.lower()
    assert str(PodAddress("p", "fd00::1", 9090)) == "http://[fd00::1]:9090"


async def test_averages_of_periods_become_work_over_the_time_between(scene: Scene) -> None:
    await scene.read()
    assert await scene.passes(2.0, 5.0, 11.0) == RevisionReading(2.0, 0.0, 2.0, 5.0, busy=True, complete=True)
    assert await scene.passes(0.0, 0.0, 12.0) == RevisionReading(0.0, 0.0, 0.0, 0.0, busy=False, complete=True)


@pytest.mark.fault("A3")
async def test_a_period_that_is_told_over_and_over_is_stale_and_no_reading(scene: Scene) -> None:
    await scene.read()
    await scene.passes(2.0, 5.0, 11.0)
    assert await scene.passes(2.0, 5.0, 11.0, after=STALE) is not None
    assert await scene.passes(2.0, 5.0, 11.0) is None
    assert scene.collector.rejected == 1
    assert await scene.passes(2.0, 5.0, 23.0) is not None, "it counts again"


async def test_a_period_that_is_read_twice_counts_once_and_its_average_goes_on(scene: Scene) -> None:
    await scene.read()
    await scene.passes(2.0, 5.0, 11.0)
    again = await scene.passes(2.0, 5.0, 11.0, after=0.3)
    assert again is not None and (again.work, again.requests, again.served) == (2.0, 0.0, 0.0)


async def test_periods_that_nobody_read_were_as_their_neighbours(scene: Scene) -> None:
    await scene.read()
    await scene.passes(2.0, 6.0, 11.0)
    reading = await scene.passes(4.0, 10.0, 14.0, after=3.0)
    assert reading is not None
    assert reading.work == pytest.approx((3.0 * 2 + 4.0) / 3)
    assert reading.requests == pytest.approx(8.0 * 2 + 10.0)


async def test_another_queue_proxy_in_the_same_pod_begins_anew(scene: Scene) -> None:
    await scene.read()
    await scene.passes(2.0, 6.0, 11.0)
    reading = await scene.passes(3.0, 1.0, 1.0)
    assert reading is not None and (reading.work, reading.busy) == (3.0, True)


async def test_before_its_first_period_it_says_nothing(scene: Scene) -> None:
    scene.server.behave = proxy()
    with pytest.raises(NoSample, match="has not counted"):
        await scene.source.sample(scene.endpoints[0])


async def test_a_request_in_the_period_that_still_runs_is_waited_for_before_zero(scene: Scene) -> None:
    """What came before the activator was in the path shows in the report whose period began after that."""
    await scene.read()
    in_path = scene.clock.monotonic()
    await scene.passes(0.0, 0.0, 11.0)
    with pytest.raises(NoSample, match="no reading since the activator took over"):
        await scene.collector.is_quiet(KEY, scene.endpoints, in_path)
    await scene.passes(0.5, 1.0, 12.0)
    assert not await scene.collector.is_quiet(KEY, scene.endpoints, in_path)
    await scene.passes(0.0, 0.0, 13.0)
    assert await scene.collector.is_quiet(KEY, scene.endpoints, in_path)
    assert LAG >= PERIOD


@pytest.mark.bad_input("scrape-size")
@pytest.mark.fault("A5")
@pytest.mark.parametrize(
    ("behave", "error"),
    [
        (hang, NoSample),
        (slam, NoSample),
        (answer(b"", "503 Service Unavailable"), NoSample),
        (answer(b"queue_requests 1", media_type="text/plain"), BadSample),
        (pour, BadSample),
    ],
)
async def test_one_that_misbehaves_gives_no_reading_in_time(scene: Scene, behave: Behaviour, error: type) -> None:
    scene.server.behave = behave
    with pytest.raises(error):
        await scene.source.sample(scene.endpoints[0])
