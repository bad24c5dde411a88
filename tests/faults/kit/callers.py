"""Callers that ask a model over and over, each when it has its answer: a closed load that outlives the platform."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.scenarios.world import infer_body

ANSWER_WITHIN = 60.0  # s


@dataclass(slots=True)
class Calls:
    """What was answered with twice the number asked for, and everything else."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)


@asynccontextmanager
async def calling(port: int, name: str, callers: int, host: str = "127.0.0.1") -> AsyncIterator[Calls]:
    """So many callers of a model that doubles, by the gateway's path, for as long as the block runs."""
    calls, stop = Calls(), asyncio.Event()
    url = f"http://{host}:{port}/v2/models/{name}/infer"
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def caller(number: int) -> None:
            while not stop.is_set():
                await _ask(session, url, float(number), calls)

        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(caller(number))
            try:
                yield calls
            finally:
                stop.set()


async def _ask(session: aiohttp.ClientSession, url: str, value: float, calls: Calls) -> None:
    try:
        async with session.post(url, json=infer_body(value)) as answer:
            text = await answer.text()
            if answer.status == 200 and json.loads(text)["outputs"][0]["data"] == [2 * value]:
                calls.answered += 1
            else:
                calls.failures.append(f"{answer.status} {text[:200]}")
    except (aiohttp.ClientError, TimeoutError) as error:
        calls.failures.append(repr(error))
