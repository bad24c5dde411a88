"""The two ways to a model: from the gateway, or through the activator; each over a line that a test scripts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from clusters.gateway.envoy import Envoy
from clusters.gateway.routes import Backend as Address
from clusters.net.endpoints import Endpoint
from tests.clusters.activator.caller import Caller, head
from tests.clusters.activator.conftest import Running
from tests.clusters.gateway.tables import ONE, table
from tests.faults.kit.proxy import Proxy

HOST = "m.default.localhost"
WHOLE_WITHIN = 30.0  # s for an answer


@dataclass(frozen=True, slots=True)
class Answered:
    """What a caller got. `whole`: by HTTP's framing nothing of it is missing."""

    status: int
    body: bytes
    whole: bool


class Way:
    """Callers come in at `port`; the model is behind `line`."""

    def __init__(self, port: int, line: Proxy) -> None:
        self.port = port
        self.line = line

    async def post(self, body: bytes, pieces: int = 1) -> Answered:
        """One request over a connection of its own, its body sent in so many pieces."""
        caller = await Caller.connect(("127.0.0.1", self.port))
        try:
            async with asyncio.timeout(WHOLE_WITHIN):
                caller.writer.write(head(host=HOST, content_length=len(body)))
                size = max(1, -(-len(body) // pieces))
                for at in range(0, len(body), size):
                    caller.writer.write(body[at : at + size])
                    await caller.writer.drain()
                return await _answer(caller)
        finally:
            caller.leave()


async def _answer(caller: Caller) -> Answered:
    """The answer, as far as it came: a caller that read on after it was cut off has nothing."""
    try:
        answer = await caller.answer()
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):  # no number: the end, where a chunk should begin
        return Answered(0, b"", whole=False)
    return Answered(answer.status, answer.body, whole=True)


async def through_gateway(gateway: Envoy, line: Proxy) -> Way:
    """The gateway sends requests of the model over this line."""
    await gateway.apply(table({"m-00001": 100}, {ONE: (Address("127.0.0.1", line.port),)}))
    return Way(gateway.port, line)


async def through_activator(activator: Running, line: Proxy, slots: int = 0) -> Way:
    """The activator does."""
    await activator.serve(Endpoint("default/pod", "127.0.0.1", line.port, line.port), slots=slots)
    return Way(activator.process.address[1], line)
