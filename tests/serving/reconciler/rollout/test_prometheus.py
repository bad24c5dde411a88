"""Metrics of a judge, queried from a server on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from clusters.base.sizes import format_size
from clusters.net.prometheus import NoValue
from serving.reconciler.rollout.judging.prometheus import MAX_BYTES, Prometheus
from serving.reconciler.rollout.judging.queries import parse_value
from serving.types.rollout import MetricRule
from tests.support.clock import SteppedClock

AT = 1767225600.123
Answering = Callable[[str], Awaitable[web.Response]]


def vector(*values: str) -> dict[str, Any]:
    """Return an answer of Prometheus 3 with a vector."""
    result = [{"metric": {"pod": str(index)}, "value": [AT, value]} for index, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def scalar(value: str) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "scalar", "result": [AT, value]}}


@contextlib.asynccontextmanager
async def asking(
    answer: Answering, timeout: float = 2.0, monotonic: Callable[[], float] = time.monotonic
) -> AsyncIterator[Prometheus]:
    """Run a server with these answers, and a client for it."""

    async def handle(request: web.Request) -> web.Response:
        return await answer(str((await request.post())["query"]))

    app = web.Application()
    app.router.add_post("/prometheus/api/v1/query", handle)
    async with TestServer(app) as server:
        made = Prometheus(str(server.make_url("/prometheus/")), timeout, monotonic)
        try:
            yield made
        finally:
            await made.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What this client says: the server beside has its requests in the log where another test has set its level."""
    said = [record for record in caplog.records if record.name == Prometheus.__module__]
    return [record for record in said if record.levelno == logging.WARNING]


def rule(query: str, name: str = "one") -> MetricRule:
    return MetricRule(name, query, 1.0)


async def test_every_metric_gets_the_value_of_its_query() -> None:
    values = {"a / b": "0.25", "max(c)": "1e-05"}

    async def answer(query: str) -> web.Response:
        return web.json_response(vector(values[query]))

    async with asking(answer) as prometheus:
        assert await prometheus.values([rule("a / b", "first"), rule("max(c)", "second")]) == {
            "first": 0.25,
            "second": 1e-05,
        }
        assert await prometheus.values([]) == {}


async def test_a_query_that_is_not_answered_in_time_rests_and_others_do_not() -> None:
    hangs, asked, clock = asyncio.Event(), list[str](), SteppedClock()

    async def answer(query: str) -> web.Response:
        asked.append(query)
        if query == "slow":
            await hangs.wait()
        return web.json_response(scalar("1"))

    async with asking(answer, timeout=0.1, monotonic=clock.monotonic) as prometheus:
        rules = [rule("slow", "slow"), rule("fast", "fast")]
        for seconds in (0.0, 9.0, 1.0, 19.0, 1.0):
            clock.step(seconds)
            assert await prometheus.values(rules) == {"slow": None, "fast": 1.0}
        assert (asked.count("slow"), asked.count("fast")) == (3, 5)
        hangs.set()
        clock.step(40.0)
        for _ in range(2):
            assert await prometheus.values(rules) == {"slow": 1.0, "fast": 1.0}


async def test_a_refused_query_has_no_value_and_the_log_says_why_once(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(query: str) -> web.Response:
        return web.json_response({"status": "error", "errorType": "bad_data", "error": "parse error: x"}, status=400)

    async with asking(answer) as prometheus:
        for _ in range(2):
            assert await prometheus.values([rule("rate(")]) == {"one": None}
    assert [record.message for record in warnings(caplog)] == [
        "metric one of a rollout has no value: the server refused the query: parse error: x"
    ]


async def hang(_: str) -> web.Response:
    await asyncio.Event().wait()
    return web.Response()


async def pour(_: str) -> web.Response:
    return web.Response(body=b" " * (MAX_BYTES + 1))


async def redirect(_: str) -> web.Response:
    return web.Response(status=302, headers={"location": "http://169.254.169.254/"})


@pytest.mark.parametrize(
    ("answer", "said"),
    [(hang, "did not answer: TimeoutError"), (pour, f"more than {format_size(MAX_BYTES)}"), (redirect, "answered 302")],
)
async def test_a_server_that_does_not_answer_well_gives_no_value(
    answer: Answering, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(answer, timeout=0.1) as prometheus:
        assert await prometheus.values([rule("up")]) == {"one": None}
    [record] = warnings(caplog)
    assert said in record.message


async def test_without_an_address_the_log_names_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    assert await Prometheus("").values([rule("up")]) == {"one": None}
    assert "rollout.prometheusUrl is not set" in caplog.text


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (scalar("2.5"), 2.5),
        (vector("0.5"), 0.5),
        (vector("0.5", "7", "NaN", "-1"), 7.0),
        (vector("+Inf"), math.inf),
        (vector("1") | {"warnings": ["partial"]}, 1.0),
    ],
)
def test_the_largest_of_all_series_is_the_value(answer: Any, value: float) -> None:
    assert parse_value(json.dumps(answer).encode()) == value


HISTOGRAM = {"metric": {}, "histogram": [AT, {"count": "3", "sum": "1", "buckets": []}]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (vector(), "no series"),
        (vector("NaN"), "NaN"),
        ({"status": "success", "data": {"resultType": "vector", "result": [HISTOGRAM]}}, "no series"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "a matrix"),
        ({"status": "success"}, "refused"),
        ({"status": "error", "error": "out\nof memory"}, "out of memory"),
        (vector("a few"), "not in the format of Prometheus'"),
        ({"status": "success", "data": {"resultType": "scalar", "result": 5}}, "not in the format of Prometheus'"),
        ([], "not in the format of Prometheus'"),
    ],
)
def test_what_is_no_number_is_no_value(answer: Any, said: str) -> None:
    with pytest.raises(NoValue, match=said):
        parse_value(json.dumps(answer).encode())
