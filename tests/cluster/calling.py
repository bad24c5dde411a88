"""A client of plain Services: single requests, and callers that ask again and again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.cluster.plain import NAME, WITHIN, Plain
from tests.support.wait import eventually

PAUSE = 0.2  # s of a caller after a failure
REQUEST_WITHIN = 120.0  # s for an answer


@dataclass(slots=True)
class Answers:
    """What requests brought: Pods by name, seconds of each, and whatever was not a 200."""

    pods: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Answers that were 200."""
        return self.pods.total()


class Caller:
    """A client of plain Services."""

    def __init__(self, session: aiohttp.ClientSession, plain: Plain) -> None:
        self._session = session
        self._plain = plain

    async def ask(self, answers: Answers, name: str = NAME, ms: int = 0) -> None:
        """One request."""
        url, headers = self._plain.request(name, ms)
        began = time.monotonic()
        try:
            async with self._session.get(url, headers=headers) as answer:
                text = (await answer.text()).strip()
        except (aiohttp.ClientError, TimeoutError) as error:
            answers.failures.append(f"{time.monotonic() - began:.2f} s: {error!r}")
            return
        if answer.status == 200:
            answers.pods[text] += 1
            answers.seconds.append(time.monotonic() - began)
        else:
            answers.failures.append(f"{answer.status} {text[:100]}")

    async def rounds(self, answers: Answers, more: int) -> None:
        """Return once so many more have come."""
        wanted = answers.total + more
        await eventually(lambda: answers.total >= wanted, WITHIN)

    @asynccontextmanager
    async def busy(self, concurrency: int, name: str = NAME, ms: int = 500) -> AsyncIterator[Answers]:
        """So many callers that ask again and again, for as long as the block runs; then all answers are in."""
        answers, stop = Answers(), asyncio.Event()

        async def caller() -> None:
            while not stop.is_set():
                failed = len(answers.failures)
                await self.ask(answers, name, ms)
                if len(answers.failures) > failed:
                    await asyncio.sleep(PAUSE)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(caller())
            try:
                yield answers
            finally:
                stop.set()


@asynccontextmanager
async def calling(plain: Plain) -> AsyncIterator[Caller]:
    """A client without connections kept: every request goes where the routes lead now."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_WITHIN)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        yield Caller(session, plain)
