"""Common parts of the measurements: the cluster, its ingress, and the state of the subjects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import POD, WARM_POOL, Kind, generation_of, is_deleting, is_true, name_of
from loadtests.cluster.subjects import NAME, POOL, WARM, Subject
from serving.types.settings.settings import Settings

LONGEST = 120.0  # s until a timeout
LOOK = 0.1  # s between checks
MANAGER = "bench"


@dataclass(frozen=True, slots=True)
class Bench:
    """The environment of a run."""

    cluster: Cluster
    settings: Settings
    client: aiohttp.ClientSession

    async def ask(self, subject: Subject, body: object) -> float:
        """Send a request; return the seconds until the whole response. Raises SystemExit if it is not a 200."""
        gateway = self.settings.gateway
        headers = {"Host": f"{NAME}.{subject.namespace}.{gateway.domain}", "Connection": "close"}
        url = f"http://{gateway.address}:{gateway.port}/v2/models/{NAME}/infer"
        began = time.perf_counter()
        async with self.client.post(url, json=body, headers=headers) as answer:
            content = await answer.read()
        took = time.perf_counter() - began
        if answer.status != 200:
            raise SystemExit(f"{subject.label}: status {answer.status} {content[:200]!r}")
        return took

    async def at_zero(self, subject: Subject) -> bool:
        """Return whether the subject has no Pods. Terminating ones are deleted at once, since queue-proxy drains for
        half a minute.
        """
        found = (await self.cluster.list(POD, subject.namespace, subject.pods)).items
        for pod in found:
            if is_deleting(pod):
                with suppress(NotFound):
                    await self.cluster.delete(POD, name_of(pod), subject.namespace, grace_period=0)
        return not found

    async def pool_has(self, size: int) -> bool:
        """Return whether the pool has that many ready members."""
        found = await self.cluster.get(WARM_POOL, POOL, WARM.namespace)
        return int((found.get("status") or {}).get("ready") or 0) >= size

    async def is_ready(self, kind: Kind, subject: Subject) -> bool:
        """Return whether the subject's Service or Model is ready, by its last status."""
        found = await self.cluster.get(kind, NAME, subject.namespace)
        seen = (found.get("status") or {}).get("observedGeneration") == generation_of(found)
        return seen and is_true(found, "Ready")


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `done` returns true. Raises SystemExit after `LONGEST` seconds."""
    deadline = time.monotonic() + LONGEST
    while not await done():
        if time.monotonic() > deadline:
            raise SystemExit(f"timed out after {LONGEST:g} s: {done}")
        await asyncio.sleep(LOOK)
