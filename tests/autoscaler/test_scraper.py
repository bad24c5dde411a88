"""Readings over real sockets, from replicas that answer, hang, respond slowly or endlessly, or report faulty values."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config import Sampling
from autoscaler.metrics.response_latency import MAX_BYTES, LatencyTotals
from autoscaler.metrics.source import NoPage, NoSample, PodScraper
from autoscaler.metrics.stat import BadSample, Sample, checked, parse_stats
from clusters.base.clock import SystemClock
from clusters.net.endpoints import Endpoint
from tests.autoscaler.pages import Behaviour, answer, drip, hang, pour, serving, slam

NO_MODEL_YET = {
    "busySeconds": 0.5,
    "requests": 0,
    "queued": 2,
    "startup": {"imports": 0.0, "load": 0.0, "warmup": 0.0, "claimed": True, "readyFor": None},
    "download": {"bytes": 10, "total": None},
    "format": None,
}
STATS = {
    "revision": "magika-00001",
    "slots": 4,
    "active": 2,
    "queued": 1,
    "requests": 17,
    "busySeconds": 3.25,
    "startup": {"imports": 0.0, "load": 20.5, "warmup": 3.0},
    "format": "onnx",
}
SHORT = Sampling(tick=0.3, timeout=0.2, max_bytes=1_024)


@contextlib.asynccontextmanager
async def replica(behave: Behaviour) -> AsyncIterator[Endpoint]:
    async with serving(behave) as server:
        yield Endpoint("default/magika-1", server.host, 1, server.port)
        assert all(request.startswith(b"GET /stats HTTP/1.1") for request in server.requests)
        # A page of more than a kilobyte would come compressed, which is no page for a reader that bounds what it reads.
        assert all(b"accept-encoding: identity\r\n" in request.lower() for request in server.requests)


@contextlib.asynccontextmanager
async def scraper() -> AsyncIterator[PodScraper]:
    made = PodScraper(SystemClock(), SHORT)
    try:
        yield made
    finally:
        await made.close()


async def test_a_reading_has_the_totals_of_the_server_and_the_time_of_the_reader() -> None:
    async with replica(answer(json.dumps(STATS).encode())) as endpoint, scraper() as source:
        before = SystemClock().monotonic()
        sample = await source.sample(endpoint)
        again = await source.sample(endpoint)
    assert (sample.busy_seconds, sample.requests, sample.in_flight) == (3.25, 17.0, 3.0)
    assert before <= sample.at <= again.at
    assert (sample.startup, sample.format) == ({"load": 20.5, "warmup": 3.0}, "onnx")


async def test_how_long_answers_took_is_a_page_of_its_own() -> None:
    page = {"revision": "m", "process": "f00", "requests": 3, "errors": 1, "latency": {"-27": 2}}
    async with serving(answer(json.dumps(page).encode())) as server, scraper() as source:
        endpoint = Endpoint("default/magika-1", server.host, 1, server.port)
        assert await source.answers(endpoint) == LatencyTotals("f00", {-27: 2}, 3, 1)
        assert server.requests[0].startswith(b"GET /stats/answers HTTP/1.1")
        server.behave = answer(b" " * (MAX_BYTES + 1))
        with pytest.raises(BadSample):
            await source.answers(endpoint)


def test_a_replica_that_has_not_its_model_yet_tells_who_waits_in_it() -> None:
    sample = parse_stats(json.dumps(NO_MODEL_YET).encode(), 0.0)
    assert (sample.in_flight, sample.startup, sample.format) == (2.0, {}, "")


@pytest.mark.parametrize("text", ["", "ONNX", "see http://evil.example", "x" * 33])
def test_what_is_no_name_of_a_format_is_not_passed_on(text: str) -> None:
    assert parse_stats(json.dumps({**STATS, "format": text}).encode(), 0.0).format == ""


@pytest.mark.parametrize(
    ("page", "tokens"),
    [
        ({"tokens": {"prompt": 700, "completion": 300}}, (700.0, 300.0)),
        ({}, None),
        *(({"tokens": value}, None) for value in (None, 7, [7, 3], {"prompt": 7}, {"prompt": 7, "completion": -1},
                                                  {"prompt": "7", "completion": 3}, {"prompt": 7, "completion": 1e16},
                                                  {"prompt": True, "completion": 3},
                                                  {"prompt": 7, "completion": 10**400})),
    ],
)  # fmt: skip
def test_the_tokens_of_a_page_are_read_and_wrong_ones_do_not_cost_the_reading(page: Any, tokens: Any) -> None:
    body = json.dumps({**STATS, **page}).encode()
    sample = parse_stats(body, 0.0)
    assert (sample.tokens, sample.busy_seconds) == (tokens, 3.25)


@pytest.mark.bad_input("scrape-size")
@pytest.mark.fault("A5")
@pytest.mark.parametrize(
    "behave", [hang, drip, slam, answer(b"{}", "503 Service Unavailable"), answer(b"", "302 Found")]
)
async def test_a_replica_that_does_not_answer_in_time_gives_no_sample(behave: Behaviour) -> None:
    async with replica(behave) as endpoint, scraper() as source:
        with pytest.raises(NoSample, match="default/magika-1"):
            await source.sample(endpoint)


async def test_a_replica_that_is_gone_gives_no_sample() -> None:
    async with replica(hang) as endpoint:
        pass
    async with scraper() as source:
        with pytest.raises(NoSample):
            await source.sample(endpoint)


async def test_who_has_no_such_page_is_told_from_who_is_silent() -> None:
    async with replica(answer(b"", "404 Not Found")) as endpoint, scraper() as source:
        with pytest.raises(NoPage):
            await source.sample(endpoint)
    async with scraper() as source:
        with pytest.raises(NoPage):
            await source.sample(endpoint)  # nobody listens there any more
    async with replica(hang) as endpoint, scraper() as source:
        with pytest.raises(NoSample) as silent:
            await source.sample(endpoint)
    assert not isinstance(silent.value, NoPage)


@pytest.mark.bad_input("scrape-size")
@pytest.mark.fault("A5")
async def test_an_answer_without_end_is_cut_off() -> None:
    async with replica(pour) as endpoint, scraper() as source:
        with pytest.raises(BadSample, match="more than 1024 bytes"):
            await source.sample(endpoint)


@pytest.mark.bad_input("scrape-values")
@pytest.mark.fault("A3")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"busy",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"busySeconds": NaN, "requests": 1}',
        b'{"busySeconds": Infinity, "requests": 1}',
        b'{"busySeconds": 1e308, "requests": 1}',
        b'{"busySeconds": 1e999, "requests": 1}',
        b'{"busySeconds": -1, "requests": 1}',
        b'{"busySeconds": "1", "requests": 1}',
        b'{"busySeconds": 1, "requests": null}',
        b'{"busySeconds": 1, "requests": 1, "active": -2}',
        b'{"busySeconds": 1, "requests": 1, "more": ' + b"[" * 4_000,
    ],
)
def test_what_is_no_reading_is_rejected(body: bytes) -> None:
    with pytest.raises(BadSample):
        parse_stats(body, 0.0)


@pytest.mark.fault("A3")
@given(st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(repr).map(str.encode))
def test_no_answer_whatever_raises_anything_else(body: bytes) -> None:
    with contextlib.suppress(BadSample):
        parse_stats(body, 0.0)


@given(st.floats(), st.floats(), st.floats(), st.floats())
def test_a_checked_reading_has_only_finite_numbers_from_zero_on(a: float, b: float, c: float, d: float) -> None:
    with contextlib.suppress(BadSample):
        sample = checked(Sample(0.0, a, b, c, d))
        assert all(0.0 <= value <= 1e15 for value in (sample.busy_seconds, sample.requests, sample.in_flight / 2))
