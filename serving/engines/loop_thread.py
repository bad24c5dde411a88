"""An event loop in a thread of its own: what is made on it may be used on it for as long as the model lives."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from serving.engines.base import Cancellation
from serving.engines.errors import Cancelled, InferenceFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_TIMEOUT: Final = 1.0  # s that what still runs may take to end; the process does not wait longer for a model


class LoopThread:
    """Runs coroutines for other threads, side by side."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], cancellation: Cancellation | None = None) -> T:
        """The result of `work`; blocks. Raises what it raises, Cancelled, and InferenceFailed if it cancels itself."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        if cancellation is not None:
            cancellation.on_cancel(lambda: _cancel(future))
        try:
            return future.result()
        except CancelledError as error:
            if cancellation is not None and cancellation.cancelled:
                raise Cancelled("the inference was cancelled") from error
            raise InferenceFailed("the model cancelled its own task") from error

    def close(self) -> None:
        """End what runs, and the thread; a coroutine that blocks the loop is left behind."""
        try:
            asyncio.run_coroutine_threadsafe(_end_others(), self._loop).result(CLOSE_TIMEOUT)
        except TimeoutError:
            log.warning("%s: code of the model still runs and is left behind", self._thread.name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT)
        if not self._thread.is_alive():
            self._loop.close()


def _cancel(future: Future[Any]) -> None:
    future.cancel()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
