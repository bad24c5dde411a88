"""Helpers to inspect the data plane, and a scripted Envoy."""

from __future__ import annotations

import asyncio

from clusters.base.objects import INGRESS, is_true
from clusters.gateway.envoy import Envoy
from clusters.gateway.routes import Backend as Address
from clusters.gateway.routes import Table
from tests.clusters.dataplane.stage import Stage
from tests.clusters.gateway.backends import ask

READY = {"NetworkConfigured": "True", "LoadBalancerReady": "True", "Ready": "True"}
DIRECT = "False:ActivatorEndpointsPopulated"
PROXIED = "True:ActivatorEndpointsPopulated"


class Stuck:
    """A scripted Envoy that records the tables that it gets."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.free = asyncio.Event()
        self.free.set()
        self.tables: list[Table] = []
        self.requests: list[int] = []

    async def apply(self, table: Table) -> None:
        self.tables.append(table)
        await self.free.wait()
        if self.error is not None:
            raise self.error

    async def requests_at(self, backend: Address) -> int:
        return self.requests.pop(0) if self.requests else 0


async def answers(envoy: Envoy, host: str = "m.default.localhost") -> str:
    answer = await ask(envoy.port, host=host)
    return str(answer.json["backend"]) if answer.status == 200 else str(answer.status)


async def is_ready(stage: Stage, name: str = "m") -> bool:
    return is_true(await stage.get(INGRESS, name), "Ready")
