"""Readings over real sockets, from replicas that answer, hang, drip, lie or pour."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config import Sampling
from autoscaler.metrics.source import NoSample, PodScraper
from autoscaler.metrics.stat import BadSample, Sample, checked, parse_stats
from clusters.clock import SystemClock
from clusters.endpoints import Endpoint

STATS = {
    "revision": "magika-00001",
    "slots": 4,
    "active": 2,
    "queued": 1,
    "requests": 17,
    "busySeconds": 3.25,
    "startup": {"imports": 0.0, "load": 20.5, "warmup": 3.0},
}
SHORT = Sampling(tick=0.3, timeout=0.2, max_bytes=1_024)

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes, status: str = "200 OK") -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    return behave


async def hang(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def pour(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b" " * 65_536)
            await writer.drain()


async def slam(writer: asyncio.StreamWriter) -> None:
    writer.close()


@contextlib.asynccontextmanager
async def replica(behave: Behaviour) -> AsyncIterator[Endpoint]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                assert request.startswith(b"GET /stats HTTP/1.1")
                await behave(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    try:
        yield Endpoint("default/magika-1", "127.0.0.1", 1, port)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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


async def test_an_answer_without_end_is_cut_off() -> None:
    async with replica(pour) as endpoint, scraper() as source:
        with pytest.raises(BadSample, match="more than 1024 bytes"):
            await source.sample(endpoint)


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
    ],
)
def test_what_is_no_reading_is_rejected(body: bytes) -> None:
    with pytest.raises(BadSample):
        parse_stats(body, 0.0)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(repr).map(str.encode))
def test_no_answer_whatever_raises_anything_else(body: bytes) -> None:
    with contextlib.suppress(BadSample):
        parse_stats(body, 0.0)


@given(st.floats(), st.floats(), st.floats(), st.floats())
def test_a_checked_reading_has_only_finite_numbers_from_zero_on(a: float, b: float, c: float, d: float) -> None:
    with contextlib.suppress(BadSample):
        sample = checked(Sample(0.0, a, b, c, d))
        assert all(0.0 <= value <= 1e15 for value in (sample.busy_seconds, sample.requests, sample.in_flight / 2))
