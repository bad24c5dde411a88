"""Callers that do not wait for each other: so many a second, whatever becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def calling(one: Callable[[], Coroutine[Any, Any, None]], rate: float) -> AsyncIterator[None]:
    """`rate` calls a second for as long as the block runs; then all have ended. A call may raise nothing."""
    stop = asyncio.Event()

    async def stream() -> None:
        loop, number = asyncio.get_running_loop(), 0
        start = loop.time()
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                group.create_task(one())
                number += 1
                await asyncio.sleep(max(0.0, start + number / rate - loop.time()))

    running = asyncio.create_task(stream())
    try:
        yield
    finally:
        stop.set()
        await running
