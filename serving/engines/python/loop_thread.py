"""An event loop in a thread of its own: what is made on it may be used on it for as long as the model lives.

A call ends when its coroutine has ended, however that goes: one that goes on after it was cancelled still uses the
model, and the server is to know. Code that blocks the loop keeps all other calls from even beginning. Whoever leaves
such a queue does so at once, as behind an inference (`turn`), unless the loop has been blocked for so long that it
hangs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Final, Generic, TypeVar

import uvloop

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InferenceFailed
from serving.engines.base.exclusive_slot import PATIENCE

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_TIMEOUT: Final = 1.0  # s that what still runs may take to end; the process does not wait longer for a model


class _Call(Generic[T]):
    """A coroutine on its way; `ended` is told how it went by the loop."""

    __slots__ = ("ended", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.work = work
        self.ended: Future[T] = Future()
        self.task: asyncio.Task[T] | None = None


class LoopThread:
    """Runs coroutines for other threads, side by side; `monotonic` is a clock in seconds."""

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._loop = uvloop.new_event_loop()  # a sixth less time for a call that sleeps than asyncio's own
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._asked_at: deque[float] = deque()  # of the calls that the loop has not come to, in its order
        self._asking = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T], cancellation: Cancellation | None = None) -> T:
        """The result of `work`; blocks. Raises what it raises, Cancelled, and InferenceFailed if it cancels itself."""
        call = _Call(work)
        with self._asking:
            self._asked_at.append(self._monotonic())
            self._loop.call_soon_threadsafe(self._begin, call)
        if cancellation is not None:
            cancellation.on_cancel(partial(self._leave, call))
        try:
            return call.ended.result()
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

    def _begin(self, call: _Call[Any]) -> None:
        """Of the loop."""
        self._asked_at.popleft()
        if call.ended.set_running_or_notify_cancel():
            call.task = self._loop.create_task(_contained(call.work))
            call.task.add_done_callback(partial(_tell, call))
        else:  # who asked has left
            call.work.close()

    def _leave(self, call: _Call[Any]) -> None:
        """Nobody waits any more: out of the queue, or ask the coroutine to end."""
        if self._blocked_for() > PATIENCE or not call.ended.cancel():
            self._loop.call_soon_threadsafe(_cancel, call)

    def _blocked_for(self) -> float:
        """Seconds, at least."""
        try:
            return self._monotonic() - self._asked_at[0]
        except IndexError:
            return 0.0


def _cancel(call: _Call[Any]) -> None:
    """Of the loop, which has come to the call by now."""
    if call.task is not None:
        call.task.cancel()


async def _contained(work: Coroutine[Any, Any, T]) -> T:
    """What would end the loop is the model's failure."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise InferenceFailed(f"{type(error).__name__}: {error}") from error


def _tell(call: _Call[Any], task: asyncio.Task[Any]) -> None:
    call.work.close()  # of a task that was cancelled before its first step
    if task.cancelled():
        call.ended.set_exception(CancelledError())
    elif (error := task.exception()) is not None:
        call.ended.set_exception(error)
    else:
        call.ended.set_result(task.result())


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
