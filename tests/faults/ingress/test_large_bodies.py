"""Large bodies for a model at zero, through the gateway and the activator: they wait with their senders."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import pytest

from clusters.gateway.envoy import Envoy
from clusters.gateway.limits import DEFAULTS
from clusters.gateway.routes import Backend as Address
from loadtests.bench.processes import pss
from tests.clusters.activator.backend import Backend
from tests.clusters.activator.caller import Caller, head
from tests.clusters.activator.conftest import Running
from tests.clusters.gateway.tables import table
from tests.faults.ingress.ways import HOST

SENDERS = 1000
PIECE = bytes(100_000)
PIECES = 100  # of a body: 10 MB
CAP: Final = 3 * DEFAULTS.buffer_bytes
"""Bytes of one stream in the gateway: as they were read, within, and to be written to the activator."""
SLACK = 1.2
LOOK = 0.3  # s
PATIENCE = 300.0  # s; an idle machine takes 10 to fill all buffers on the way, one with other work on both cores 120


@pytest.mark.fault("I6")
@pytest.mark.timeout(400)
async def test_a_thousand_large_bodies_cost_the_gateway_its_buffers_and_no_more(
    gateway: Envoy, activator: Running
) -> None:
    await activator.serve(timeout=PATIENCE)
    await gateway.apply(table({"iris-00001": 100}, {}, Address(*activator.process.address), timeout=PATIENCE))
    assert gateway.pid is not None
    before = pss(gateway.pid), activator.memory()
    callers = [await Caller.connect(("127.0.0.1", gateway.port)) for _ in range(SENDERS)]
    sent = [0] * SENDERS
    senders = [asyncio.create_task(_send(caller, sent, number)) for number, caller in enumerate(callers)]
    await activator.queued(SENDERS)
    await _at_rest(sent)

    assert max(sent) < PIECES, "nobody's body has gone to where nobody reads"
    assert pss(gateway.pid) - before[0] <= SENDERS * CAP * SLACK
    assert activator.memory() - before[1] <= SENDERS * CAP * SLACK
    stay = callers[::100]
    for caller, sender in zip(callers, senders, strict=True):
        if caller not in stay:
            sender.cancel()
            caller.leave()
    async with Backend() as backend:
        await activator.serve(backend.endpoint, slots=2, timeout=PATIENCE)
        answers = await asyncio.gather(*(caller.answer() for caller in stay))
        assert {(answer.status, len(answer.body)) for answer in answers} == {(200, PIECES * len(PIECE))}
        for caller in stay:
            caller.leave()
        await activator.idle()
    await asyncio.gather(*senders, return_exceptions=True)


async def _send(caller: Caller, sent: list[int], number: int) -> None:
    caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(PIECE))
    caller.writer.write(head(host=HOST, content_length=PIECES * len(PIECE)))
    for _ in range(PIECES):
        caller.writer.write(PIECE)
        await caller.writer.drain()
        sent[number] += 1


async def _at_rest(sent: list[int]) -> None:
    """Until nobody has sent more within a look: all buffers on the way are full."""
    before: list[int] = []
    while before != sent:
        before = list(sent)
        await asyncio.sleep(LOOK)
