"""The rings of readings, and the sampler that fills them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec
import pytest

from autoscaler.metrics.pod_http import PodAddress, PodResponse
from autoscaler.metrics.stat import NoSample
from serving.dashboard.history import COARSE, FINE, Amount, History, SeriesName
from serving.dashboard.sampler import OFTEN, SELDOM, Sampler
from serving.dashboard.series import read_series, series_of
from tests.support.clock import SteppedClock
from tests.support.loops import at_work

IRIS = SeriesName("default", "iris")
START = 1_800_000_000.0


def amount(requests: int, errors: int = 0, bucket: int = -80) -> Amount:
    return Amount(requests, errors, Counter({bucket: requests - errors}))


def test_rates_and_quantiles_of_an_interval() -> None:
    history = History()
    history.add(IRIS, Amount(200, 2, Counter({-80: 190, 0: 8})), 10.0, 3, START)
    reading = history.latest(IRIS, START - 1)
    assert reading is not None
    assert (reading.requests, reading.errors, reading.replicas) == (20.0, 0.2, 3)
    assert reading.p50 == pytest.approx(2**-10)
    assert reading.p99 == pytest.approx(1.0)
    assert reading.error_share == pytest.approx(0.01)


def test_without_requests_there_is_no_time() -> None:
    history = History()
    history.add(IRIS, Amount(), 60.0, 1, START)
    columns = history.read(IRIS, FINE, START)
    assert (columns["requests"], columns["p99"], columns["replicas"]) == ([0.0], [None], [1.0])
    reading = history.latest(IRIS, START - 1)
    assert reading is not None and math.isnan(reading.p50)


def test_an_old_reading_is_not_the_present_traffic() -> None:
    history = History()
    history.add(IRIS, amount(1), 60.0, 1, START)
    assert history.latest(IRIS, START + 1) is None


def test_the_rings_hold_a_quarter_of_an_hour_and_a_day() -> None:
    history = History()
    for index in range(FINE.places + 10):
        history.add(IRIS, amount(index), 5.0, 1, START + 5 * index)
    until = START + 5 * (FINE.places + 9)
    fine = history.read(IRIS, FINE, until)
    assert len(fine["at"]) == FINE.places
    assert fine["requests"][0] == 2.0  # the first ten were overwritten
    assert fine["at"] == sorted(one for one in fine["at"] if one is not None)
    assert history.read(IRIS, FINE, until + FINE.seconds * FINE.places)["at"] == []
    assert history.read(IRIS, COARSE, until + 3600)["at"][0] == START
    assert history.read(IRIS, COARSE, until + COARSE.seconds * COARSE.places)["at"] == []


def test_a_minute_sums_its_samples() -> None:
    history = History()
    for index in range(12):
        history.add(IRIS, amount(10 if index < 6 else 0, bucket=-80), 5.0, 1 + index % 2, START + 5 * index)
    coarse = history.read(IRIS, COARSE, START + 59)
    assert coarse["requests"] == [pytest.approx(1.0)]
    assert coarse["replicas"] == [2.0]


def test_the_series_without_a_reading_for_the_longest_time_is_replaced() -> None:
    history = History(most=2)
    for model in ("a", "b", "a", "c"):
        history.add(SeriesName("default", model), amount(7), 1.0, 1, START)
    assert history.read(SeriesName("default", "b"), FINE, START)["at"] == []
    assert history.read(SeriesName("default", "a"), FINE, START)["requests"] == [7.0]
    history.add(SeriesName("default", "d"), amount(1), 1.0, 1, START + 5)
    assert history.read(SeriesName("default", "d"), FINE, START + 5)["requests"] == [1.0]


def test_models_that_are_gone_are_forgotten() -> None:
    history = History()
    history.add(IRIS, amount(7), 1.0, 1, START)
    history.forget("default", "iris")
    assert history.read(IRIS, FINE, START)["at"] == []


def test_the_versions_of_a_chart_share_its_axis() -> None:
    history = History()
    history.add(IRIS, amount(7), 1.0, 1, START)
    history.add(IRIS._replace(revision="iris-00002"), amount(3), 1.0, 1, START + 5)
    found = series_of(read_series(history, "default", "iris", FINE, START + 5), FINE, START + 5)
    assert found["at"] == [START, START + 5]
    assert [one["name"] for one in found["series"]] == ["", "iris-00002"]
    assert found["series"][0]["requests"] == [7.0, None]
    assert found["series"][1]["requests"] == [None, 3.0]


class Servers:
    """The pages of replicas by the name of the Pod."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[str, Any]] = {}
        self.reads = 0

    async def get(self, address: PodAddress, path: str, max_bytes: int) -> PodResponse:
        self.reads += 1
        if address.pod not in self.pages:
            raise NoSample("gone")
        return PodResponse(msgspec.json.encode(self.pages[address.pod]), "application/json")

    async def close(self) -> None:
        """Nothing is open."""


def pod(name: str, revision: str = "iris-00001") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default",
                     "labels": {"knodel.dev/model": "iris", "serving.knative.dev/revision": revision}},
        "spec": {"containers": [{"name": "server"}]},
        "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def page(requests: int, errors: int = 0, process: str = "p") -> dict[str, Any]:
    return {"process": process, "revision": "r", "requests": requests, "errors": errors,
            "latency": {"-80": requests - errors}}  # fmt: skip


async def test_a_sample_is_the_difference_of_two_pages() -> None:
    clock, servers, history = SteppedClock(), Servers(), History()
    pods = [pod("a"), pod("b")]
    sampler = Sampler(pods, lambda: servers, history, clock)
    servers.pages = {"default/a": page(1000), "default/b": page(500)}
    await sampler.sample(servers)
    assert history.latest(IRIS, 0) is None  # the first totals may be of last week
    clock.step(10)
    servers.pages = {"default/a": page(1100, 1), "default/b": page(3, process="restarted")}
    await sampler.sample(servers)
    reading = history.latest(IRIS, 0)
    assert reading is not None
    assert (reading.requests, reading.errors, reading.replicas) == (10.3, 0.1, 2)


async def test_a_replica_that_does_not_answer_once_is_not_counted_twice() -> None:
    clock, servers, history = SteppedClock(), Servers(), History()
    sampler = Sampler([pod("a")], lambda: servers, history, clock)
    for pages in ({"default/a": page(1000)}, {}, {"default/a": page(1001)}):
        servers.pages = pages
        await sampler.sample(servers)
        clock.step(10)
    reading = history.latest(IRIS, 0)
    assert reading is not None and reading.requests == pytest.approx(0.1)


@pytest.mark.parametrize("body", [{}, {"process": "p", "requests": -1, "errors": 0, "latency": {}}, {"process": 3}])
async def test_a_page_of_something_else_is_no_reading(body: dict[str, Any]) -> None:
    clock, servers, history = SteppedClock(), Servers(), History()
    sampler = Sampler([pod("a")], lambda: servers, history, clock)
    servers.pages = {"default/a": body}
    await sampler.sample(servers)
    clock.step(10)
    await sampler.sample(servers)
    reading = history.latest(SeriesName("default", "iris", "iris-00001"), 0)
    assert reading is None or reading.requests == 0


async def test_versions_have_series_once_there_are_two() -> None:
    clock, servers, history = SteppedClock(), Servers(), History()
    pods = [pod("a")]
    sampler = Sampler(pods, lambda: servers, history, clock)
    servers.pages = {"default/a": page(0), "default/b": page(0)}
    await sampler.sample(servers)
    clock.step(10)
    await sampler.sample(servers)
    assert history.versions("default", "iris") == []
    pods.append(pod("b", "iris-00002"))
    clock.step(10)
    await sampler.sample(servers)
    assert history.versions("default", "iris") == ["iris-00001", "iris-00002"]


async def test_nothing_is_read_more_than_once_a_minute_while_nobody_looks() -> None:
    clock, servers = SteppedClock(), Servers()
    sampler = Sampler([pod("a")], lambda: servers, History(), clock)
    servers.pages = {"default/a": page(0)}
    async with at_work(sampler.run()):
        await _settle()
        assert servers.reads == 1
        for _ in range(int(SELDOM) - 1):
            clock.step(1)
            await _settle()
        assert servers.reads == 1
        clock.step(1)
        await _settle()
        assert servers.reads == 2
        with sampler.viewing():
            await _settle()
            clock.step(OFTEN)
            await _settle()
            assert servers.reads == 3
            clock.step(OFTEN)
            await _settle()
            assert servers.reads == 4
        clock.step(OFTEN)
        await _settle()
        before = servers.reads
        for _ in range(int(SELDOM) - 1):
            clock.step(1)
            await _settle()
        assert servers.reads <= before + 1


async def _settle() -> None:
    import asyncio

    for _ in range(20):
        await asyncio.sleep(0)
