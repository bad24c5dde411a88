"""Models that die, or hang up, between the moment they are picked and their answer."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from clusters.gateway.envoy import Envoy
from clusters.gateway.routes import Backend as Address
from tests.clusters.activator.backend import Backend, Call
from tests.clusters.activator.caller import Caller
from tests.clusters.activator.conftest import Running
from tests.clusters.gateway.tables import ONE, table
from tests.faults.ingress.ways import HOST, Way, through_activator, through_gateway
from tests.faults.kit.proxy import Proxy

CALLERS = 60
KEPT = 5.0  # s that uvicorn keeps an idle connection by default
GAPS = (KEPT - 1.3, KEPT + 0.3)  # s between two requests of a caller: around the gateway's bound, 4 s, and the model's
ROUNDS = 60


@pytest.mark.fault("I4")
@pytest.mark.parametrize("kind", ["gateway", "activator"])
async def test_no_request_meets_a_connection_that_the_model_closes_for_being_idle(
    gateway: Envoy, activator: Running, kind: str
) -> None:
    """As many connections as callers, all kept; then requests in the very second in which the model closes them."""
    together = asyncio.Barrier(CALLERS)

    async def closes_when_idle(call: Call) -> None:
        if call.headers.get("x-first"):
            await together.wait()
        await Backend.echo(call)
        loop = asyncio.get_running_loop()
        loop.call_later(KEPT, call.writer.close)

    async with Backend(closes_when_idle) as backend, Proxy(("127.0.0.1", backend.port)) as line:
        way = await (through_gateway(gateway, line) if kind == "gateway" else through_activator(activator, line))
        callers = [await Caller.connect(("127.0.0.1", way.port)) for _ in range(CALLERS)]
        source = random.Random(0)
        answers = await asyncio.gather(*(_twice(caller, source.uniform(*GAPS)) for caller in callers))
        assert line.connections >= CALLERS
        for caller in callers:
            caller.leave()

    assert [answer for answer in answers if answer != (200, 200)] == []


async def _twice(caller: Caller, gap: float) -> tuple[int, int]:
    first = await caller.post(b"first", host=HOST, x_first="1")
    await asyncio.sleep(gap)
    second = await caller.post(b"second", host=HOST)
    return first.status, second.status


class Mortal:
    """A model that dies at a random moment of a request, and comes back at the same address."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)
        self.begun: dict[bytes, int] = {}

    async def __call__(self, call: Call) -> None:
        body = await call.body()
        self.begun[body] = self.begun.get(body, 0) + 1
        if self._source.random() < 0.2:
            call.writer.transport.abort()
            return
        await call.answer(body)


@pytest.mark.fault("I4")
@pytest.mark.parametrize("kind", ["gateway", "activator"])
async def test_what_a_model_may_have_begun_is_never_sent_again(gateway: Envoy, activator: Running, kind: str) -> None:
    mortal = Mortal(1)
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(Backend(mortal, name=f"default/{n}")) for n in range(3)]
        way = await _to_all(gateway, activator, kind, backends)
        answers = [await way.post(b"%d" % number) for number in range(ROUNDS)]
        await backends[0].close()  # connections are refused from here on
        answers += [await way.post(b"%d" % number) for number in range(ROUNDS, 2 * ROUNDS)]

    assert {answer.status for answer in answers} == {200, 502}
    assert all(answer.body == b"%d" % number for number, answer in enumerate(answers) if answer.status == 200)
    assert set(mortal.begun.values()) == {1}
    died = len(mortal.begun) - sum(answer.status == 200 for answer in answers)
    assert died == sum(answer.status == 502 for answer in answers), "those that were refused went elsewhere"


async def _to_all(gateway: Envoy, activator: Running, kind: str, backends: list[Backend]) -> Way:
    nobody = Proxy(("127.0.0.1", 1))  # these ways have no line between
    if kind == "gateway":
        addresses = tuple(Address("127.0.0.1", backend.port) for backend in backends)
        await gateway.apply(table({"m-00001": 100}, {ONE: addresses}))
        return Way(gateway.port, nobody)
    await activator.serve(*(backend.endpoint for backend in backends))
    return Way(activator.process.address[1], nobody)
