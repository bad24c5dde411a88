"""A steady stream of requests that does not wait for its answers: what fails is what a user would have seen."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.open_loop import calling

ANSWER_WITHIN = 30.0  # s


@dataclass(slots=True)
class Probes:
    """What has been answered with 200, and every other answer or broken connection."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)


@asynccontextmanager
async def probing(url: str, headers: Mapping[str, str], body: Any, rate: float = 20.0) -> AsyncIterator[Probes]:
    """POST `body` at `rate` requests a second, open loop, for as long as the block runs; then all answers are in."""
    probes = Probes()
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one() -> None:
            try:
                async with session.post(url, headers=headers, data=json.dumps(body)) as answer:
                    text = await answer.text()
                    if answer.status == 200:
                        probes.answered += 1
                    else:
                        probes.failures.append(f"{answer.status} {text[:200]}")
            except (aiohttp.ClientError, TimeoutError) as error:
                probes.failures.append(repr(error))

        async with calling(one, rate):
            yield probes
