"""A steady stream of requests, and every answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.scenarios.answers import Answer
from tests.support.open_loop import calling


@dataclass(slots=True)
class Steady:
    """Every answer that came, and every connection that broke."""

    answers: list[Answer] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[Answer]:
        """Answers that were not 200."""
        return [one for one in self.answers if one.status != 200]


@asynccontextmanager
async def steadily(ask: Callable[[], Awaitable[Answer]], rate: float) -> AsyncIterator[Steady]:
    """`rate` requests a second, open loop, for as long as the block runs; then all answers are in."""
    seen = Steady()

    async def one() -> None:
        try:
            seen.answers.append(await ask())
        except (aiohttp.ClientError, TimeoutError) as error:
            seen.broken.append(repr(error))

    async with calling(one, rate):
        yield seen
