"""Callers of one model through the gateway of a machine, and what became of their requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.platform.machine import Machine
from tests.scenarios.world import infer_body
from tests.support.open_loop import calling

ANSWER_WITHIN = 60.0  # s
RETRY = (429, 503)
"""Statuses that ask for another try, and say when."""


@dataclass(slots=True)
class Tally:
    """Statuses (0: a broken connection), the seconds of what was answered with 200, and what should not be."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.statuses.total()

    @property
    def share(self) -> float:
        """Of requests that were answered with 200."""
        return self.statuses[200] / max(1, self.total)

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the good answers came."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Callers:
    """Who calls one model, each request over a connection that is kept or made."""

    def __init__(self, here: Machine, session: aiohttp.ClientSession, name: str) -> None:
        self._url = f"http://127.0.0.1:{here.port}/v2/models/{name}/infer"
        self._session = session
        self._body = json.dumps(infer_body(1.0))

    async def one(self, tally: Tally) -> None:
        """One request, told to `tally`."""
        began = time.perf_counter()
        try:
            async with self._session.post(self._url, data=self._body) as answer:
                text, status = await answer.text(), answer.status
        except (aiohttp.ClientError, TimeoutError):
            tally.statuses[0] += 1
            return
        tally.statuses[status] += 1
        if status == 200:
            tally.seconds.append(time.perf_counter() - began)
        elif status in RETRY and "retry-after" not in answer.headers:
            tally.faults.append(f"{status} without Retry-After: {text[:200]}")

    async def at_once(self, number: int) -> Tally:
        """So many requests at the same moment."""
        tally = Tally()
        await asyncio.gather(*(self.one(tally) for _ in range(number)))
        return tally

    @asynccontextmanager
    async def steadily(self, rate: float) -> AsyncIterator[Tally]:
        """So many a second, whatever becomes of them, for as long as the block runs."""
        tally = Tally()
        async with calling(lambda: self.one(tally), rate):
            yield tally


@asynccontextmanager
async def callers(here: Machine, name: str) -> AsyncIterator[Callers]:
    """As many connections as there are requests at a time."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=0), headers=headers
    ) as session:
        yield Callers(here, session, name)
