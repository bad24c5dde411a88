"""Background tasks of the platform."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from clusters.base.errors import KnodelError


class BackgroundTasks:
    """Endless tasks that run together. If one ends, `until` raises its error."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start `loop`. It is cancelled when the context ends."""
        task = asyncio.get_running_loop().create_task(loop, name=getattr(loop, "__qualname__", ""))
        self._tasks.add(task)
        return task

    async def until(self, done: Coroutine[Any, Any, object]) -> None:
        """Wait for `done`. Raises the error of the first task that fails meanwhile, KnodelError if one just ends."""
        wanted = asyncio.ensure_future(done)
        await asyncio.wait({wanted, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                wanted.cancel()
                task.result()
                raise KnodelError(f"a part of the platform ended on its own: {task.get_name()}: see the log")
        await wanted

    async def __aenter__(self) -> BackgroundTasks:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
