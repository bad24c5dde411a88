"""Two webhooks, one of which is killed while events come: its senders find the other."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from clusters.base.objects import MODEL_EVENT
from clusters.embedded.cluster import EmbeddedCluster
from tests.eventing.test_main import make_event_source
from tests.eventing.webhook import STRUCTURED, event, signature
from tests.support.api import api_server
from tests.support.ports import free_ports
from tests.support.replicas import ReplicaProcess, replica, until_ready

EVENTS, SENDERS = 300, 8
KILLED_AFTER = 100
"""Events acknowledged: both have taken some, and many are still to come."""


class Senders:
    """Each sends an event after the other, to one webhook and the other in turn until one acknowledges it."""

    def __init__(self, ports: list[int], victim: ReplicaProcess) -> None:
        self.taken_by: Counter[int] = Counter()
        self.left_alone = 0
        self._ports = ports
        self._victim = victim

    async def send_all(self) -> None:
        """Return once all are acknowledged."""
        numbers = iter(range(EVENTS))
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(self._send(session, numbers) for _ in range(SENDERS)))

    async def _send(self, session: aiohttp.ClientSession, numbers: Iterator[int]) -> None:
        for number in numbers:
            turns = itertools.cycle(self._ports if number % 2 else reversed(self._ports))
            while not await self._taken(session, next(turns), number):
                self.left_alone += 1
            if self.taken_by.total() == KILLED_AFTER:
                self._victim.process.kill()

    async def _taken(self, session: aiohttp.ClientSession, port: int, number: int) -> bool:
        body = json.dumps(event(id=str(number))).encode()
        headers = {"content-type": STRUCTURED, **signature(body, time.time())}
        try:
            async with session.post(f"http://127.0.0.1:{port}/events", data=body, headers=headers) as answer:
                assert answer.status == 202
        except aiohttp.ClientError:
            return False
        self.taken_by[port] += 1
        return True


@pytest.mark.fault("E3")
async def test_no_event_is_missing_and_none_is_there_twice(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    await make_event_source(cluster)
    ports = free_ports(2)
    async with api_server(cluster, tmp_path) as kubeconfig:
        options = ["--kubeconfig", str(kubeconfig)]
        async with (
            replica("serving.platform.webhook_main", options, tmp_path, "one", PORT=str(ports[0])) as one,
            replica("serving.platform.webhook_main", options, tmp_path, "two", PORT=str(ports[1])) as two,
        ):
            await until_ready(one, two)
            senders = Senders(ports, one)
            await senders.send_all()

            assert await one.process.wait() == -signal.SIGKILL
            assert senders.left_alone and senders.taken_by[ports[0]]
            kept = (await cluster.list(MODEL_EVENT)).items
            assert sorted(int(obj["spec"]["id"]) for obj in kept) == list(range(EVENTS))
            assert await asyncio.wait_for(two.end(), 5) == 0
