"""A bad line between the ingress and a model: late, slow, in crumbs, reset; what is not whole is said to be not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from clusters.embedded.kubelet.probes import ProbeHandler, probe_once
from clusters.gateway.envoy import Envoy
from serving.makers.pod_spec import LIVE_TIMEOUT, PROBE_TIMEOUT
from tests.clusters.activator.backend import Backend, Call
from tests.clusters.activator.conftest import Running
from tests.faults.ingress.ways import Way, through_activator, through_gateway
from tests.faults.kit.proxy import Proxy, Script

Lay = Callable[[Backend], Awaitable[Way]]
LATENCY = 0.2  # s each way
SLOW = 10_000  # bytes/s
BODY = bytes(range(256)) * 120  # 30 kB: 3 s each way over the slow line
ANSWER = b"a whole answer, and not less " * 40
POSITIONS = (1, 20, 60, 200, 700, 1100)
"""Bytes of an answer after which the line breaks: in the status line, in the headers, in the body."""


@pytest.fixture(params=["gateway", "activator"])
async def lay(request: pytest.FixtureRequest, gateway: Envoy, activator: Running) -> AsyncIterator[Lay]:
    """Lays a way to a backend over a line of the test's own."""
    lines: list[Proxy] = []

    async def way_to(backend: Backend) -> Way:
        line = await Proxy(("127.0.0.1", backend.port)).__aenter__()
        lines.append(line)
        if request.param == "gateway":
            return await through_gateway(gateway, line)
        return await through_activator(activator, line)

    yield way_to
    for line in lines:
        await line.__aexit__()


@pytest.mark.fault("I9")
async def test_a_late_line_costs_its_time_and_nothing_else(lay: Lay) -> None:
    async with Backend() as backend:
        way = await lay(backend)
        way.line.script = Script(delay=LATENCY)
        began = time.monotonic()
        answers = await asyncio.gather(*(way.post(b"%d" % number) for number in range(50)))
        took = time.monotonic() - began

    assert [(answer.status, answer.body) for answer in answers] == [(200, b"%d" % number) for number in range(50)]
    assert took > 2 * LATENCY


@pytest.mark.fault("I9")
async def test_a_packet_for_each_byte_is_the_same_request_and_the_same_answer(lay: Lay) -> None:
    async with Backend() as backend:
        way = await lay(backend)
        way.line.script = Script(piece=1)
        answers = await asyncio.gather(*(way.post(b"%04d" % number * 100) for number in range(5)))

    assert [answer.body for answer in answers] == [b"%04d" % number * 100 for number in range(5)]


@pytest.mark.fault("I9")
async def test_a_slow_line_brings_all_of_it(lay: Lay) -> None:
    async with Backend() as backend:
        way = await lay(backend)
        way.line.script = Script(rate=SLOW, piece=1000)
        answer = await way.post(BODY)

    assert (answer.status, answer.body) == (200, BODY)


async def by_length(call: Call) -> None:
    await call.body()
    await call.answer(ANSWER)


async def by_chunks(call: Call) -> None:
    await call.body()
    call.writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for at in range(0, len(ANSWER), 100):
        part = ANSWER[at : at + 100]
        call.writer.write(b"%x\r\n%b\r\n" % (len(part), part))
    call.writer.write(b"0\r\n\r\n")
    await call.writer.drain()


async def until_the_end(call: Call) -> None:
    await call.body()
    call.writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + ANSWER)
    call.writer.close()


@pytest.mark.fault("I9")
@pytest.mark.parametrize("frame", [by_length, by_chunks])
async def test_an_answer_that_is_reset_on_its_way_is_never_passed_on_as_complete(
    lay: Lay, frame: Callable[[Call], Awaitable[None]]
) -> None:
    async with Backend(frame) as backend:
        await _check_that_a_reset_shows(await lay(backend))


@pytest.mark.fault("I9")
async def test_an_answer_that_lasts_until_the_end_is_not_ended_by_a_reset(activator: Running) -> None:
    """Through the activator. Envoy takes the reset for the end; of Knodel's servers every answer says its length."""
    async with Backend(until_the_end) as backend, Proxy(("127.0.0.1", backend.port)) as line:
        await _check_that_a_reset_shows(await through_activator(activator, line))


async def _check_that_a_reset_shows(way: Way) -> None:
    """Cut off (0), or told that the model's answer was (502)."""
    intact = await way.post(b"x")
    assert (intact.status, intact.body) == (200, ANSWER)
    broken = []
    for position in POSITIONS:
        way.line.script = Script(reset_after=position)
        await way.line.reset()
        broken.append(await way.post(b"x"))
    assert {answer.status for answer in broken} <= {0, 502}
    assert not any(ANSWER[:20] in answer.body for answer in broken)


@pytest.mark.fault("I9")
async def test_a_request_that_is_reset_on_its_way_never_reaches_the_model_as_complete(lay: Lay) -> None:
    complete: list[bytes] = []

    async def keep(call: Call) -> None:
        complete.append(await call.body())
        await call.answer()

    async with Backend(keep) as backend:
        way = await lay(backend)
        for position in (10, 100, 1000, len(BODY)):
            way.line.script = Script(cut_after=position, piece=500)
            await way.line.reset()
            answer = await way.post(BODY)
            assert answer.status in (0, 502, 503), position
            assert complete == []


@pytest.mark.fault("I9")
async def test_a_late_or_crumbling_line_makes_no_replica_unhealthy() -> None:
    async def healthy(call: Call) -> None:
        await call.answer(b"ready")

    for script in (Script(delay=LATENCY), Script(piece=1), Script(rate=SLOW)):
        async with Backend(healthy) as backend, Proxy(("127.0.0.1", backend.port), script) as line:
            target = ProbeHandler(line.port, "/v2/health/ready")
            seen = [
                await probe_once("127.0.0.1", target, float(timeout))
                for timeout in (PROBE_TIMEOUT, LIVE_TIMEOUT)
                for _ in range(3)
            ]
        assert [result for result in seen if not result.ok] == [], script
