"""Clients in a closed loop while splits, endpoints and revisions change: every status is 200."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

import pytest

from clusters.base.objects import Key
from clusters.gateway.envoy import Envoy
from clusters.gateway.ingress import virtual_hosts
from clusters.gateway.routes import Backend as Address
from clusters.gateway.routes import Table
from tests.clusters.gateway.backends import Backend, backend, read_answer
from tests.clusters.gateway.ingresses import ingress
from tests.support.wait import eventually

CLIENTS = 16
CHANGES = 60
MOST_REPLICAS = 3


class Clients:
    """Clients that send the next request as soon as they have the answer, each over one connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = asyncio.Event()
        self.answers: Counter[int] = Counter()

    async def run(self) -> None:
        await asyncio.gather(*(self._client(number) for number in range(CLIENTS)))

    def stop(self) -> None:
        self._stop.set()

    async def _client(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        host, path = (b"m.default.localhost", b"/") if number % 2 else (b"x", b"/v2/models/m/infer")
        while not self._stop.is_set():
            writer.write(b"POST " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 2\r\n\r\n{}")
            self.answers[(await read_answer(reader)).status] += 1
        writer.close()


class Fleet:
    """Revisions with replicas that come and go as the kubelet lets them: parked, quiet, then stopped at once."""

    def __init__(self, gateway: Envoy, activator: Backend, stack: AsyncExitStack) -> None:
        self._gateway = gateway
        self._activator = activator
        self._stack = stack
        self._replicas: dict[Key, list[tuple[Backend, AsyncExitStack]]] = {}
        self._splits: dict[str, int] = {}
        self._number = 0

    async def change(self, choose: random.Random) -> None:
        """One random change, put in force; what it removes is stopped at once."""
        kind = choose.choice(["split", "scale", "scale", "revision"])
        if kind == "revision" or len(self._splits) < 2:
            await self._new_revision(choose)
        elif kind == "split":
            self._split(choose)
        gone = await self._scale(choose) if kind == "scale" else []
        await self._apply(frozenset(replica.address for replica, _ in gone))
        for replica, stack in gone:
            await eventually(partial(self._is_quiet, replica))
            await stack.aclose()

    async def _is_quiet(self, replica: Backend) -> bool:
        return await self._gateway.requests_at(replica.address) == 0

    async def _apply(self, parked: frozenset[Address]) -> None:
        backends = {
            key: tuple(replica.address for replica, _ in replicas)
            for key, replicas in self._replicas.items()
            if replicas and key.name in self._splits
        }
        hosts = virtual_hosts(ingress("m", self._splits), lambda revision: 30.0)
        await self._gateway.apply(Table(hosts, backends, self._activator.address, parked))

    async def _new_revision(self, choose: random.Random) -> None:
        self._number += 1
        key = Key("default", f"m-{self._number:05}")
        self._replicas[key] = []
        await self._start(key)
        newest = sorted([*self._splits, key.name])[-3:]
        self._splits = dict.fromkeys(newest, 1)
        self._split(choose)

    def _split(self, choose: random.Random) -> None:
        names = list(self._splits)
        cuts = sorted(choose.randint(0, 100) for _ in names[1:])
        percents = [high - low for low, high in zip([0, *cuts], [*cuts, 100], strict=True)]
        self._splits = dict(zip(names, percents, strict=True))

    async def _scale(self, choose: random.Random) -> list[tuple[Backend, AsyncExitStack]]:
        key = choose.choice(list(self._replicas))
        wanted = choose.randint(0, MOST_REPLICAS)
        while len(self._replicas[key]) < wanted:
            await self._start(key)
        gone = self._replicas[key][wanted:]
        self._replicas[key] = self._replicas[key][:wanted]
        return gone

    async def _start(self, key: Key) -> None:
        stack = await self._stack.enter_async_context(AsyncExitStack())
        self._replicas[key].append((await stack.enter_async_context(backend(str(key))), stack))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.fault("I8")
async def test_no_request_fails_because_of_a_configuration_change(gateway: Envoy, seed: int) -> None:
    async with AsyncExitStack() as stack:
        activator = await stack.enter_async_context(backend("activator"))
        fleet = Fleet(gateway, activator, stack)
        choose = random.Random(seed)
        await fleet.change(choose)
        clients = Clients(gateway.port)
        running = asyncio.create_task(clients.run())
        for _ in range(CHANGES):
            await fleet.change(choose)
        clients.stop()
        await running
    assert set(clients.answers) == {200}
    assert clients.answers[200] > CHANGES
