"""Endless loops that run for as long as a block does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def at_work(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """All of them at once, until the block ends. Raises what one of them failed with meanwhile."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
