"""An event loop in a thread of its own, for the lifetime of a model.

A call returns when its coroutine has ended, even after cancellation: until then it uses the model, and the server
counts it. Code that blocks the loop keeps all other calls from starting. A waiting call that is cancelled returns at
once, as in `ExclusiveSlot`, unless the loop has been blocked for so long that it hangs.
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
from serving.engines.base.exclusive_slot import HANG_AFTER

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_TIMEOUT: Final = 1.0  # s for running coroutines to end


class _Call(Generic[T]):
    """A coroutine to run; the loop sets the result of `ended`."""

    __slots__ = ("ended", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.work = work
        self.ended: Future[T] = Future()
        self.task: asyncio.Task[T] | None = None


class LoopThread:
    """Run coroutines of other threads concurrently; `monotonic` is a clock in seconds."""

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._loop = uvloop.new_event_loop()  # a call that sleeps takes a sixth less time than with asyncio's loop
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._queued_at: deque[float] = deque()  # of the calls that the loop has not started, in order
        self._queue_lock = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T], cancellation: Cancellation | None = None) -> T:
        """Return the result of `work`; blocks.

        Raises the errors of `work`, Cancelled, and InferenceFailed when `work` cancels itself.
        """
        call = _Call(work)
        with self._queue_lock:
            self._queued_at.append(self._monotonic())
            self._loop.call_soon_threadsafe(self._start, call)
        if cancellation is not None:
            cancellation.on_cancel(partial(self._abandon, call))
        try:
            return call.ended.result()
        except CancelledError as error:
            if cancellation is not None and cancellation.cancelled:
                raise Cancelled("the inference was cancelled") from error
            raise InferenceFailed("the model cancelled its own task") from error

    def close(self) -> None:
        """Cancel running coroutines and end the thread, unless a coroutine blocks the loop."""
        try:
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(CLOSE_TIMEOUT)
        except TimeoutError:
            log.warning("%s: code of the model is still running and was abandoned", self._thread.name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT)
        if not self._thread.is_alive():
            self._loop.close()

    def _start(self, call: _Call[Any]) -> None:
        """Start a call; runs on the loop."""
        self._queued_at.popleft()
        if call.ended.set_running_or_notify_cancel():
            call.task = self._loop.create_task(_run_task(call.work))
            call.task.add_done_callback(partial(_complete, call))
        else:  # the call was cancelled while it waited
            call.work.close()

    def _abandon(self, call: _Call[Any]) -> None:
        """Cancel a call: remove it from the queue, or cancel its coroutine."""
        if self._blocked_seconds() > HANG_AFTER or not call.ended.cancel():
            # A queued call is started first, so that its task exists by then.
            self._loop.call_soon_threadsafe(lambda: call.task.cancel() if call.task is not None else None)

    def _blocked_seconds(self) -> float:
        """Return a lower bound of the seconds for which the loop has been blocked."""
        try:
            return self._monotonic() - self._queued_at[0]
        except IndexError:
            return 0.0


async def _run_task(work: Coroutine[Any, Any, T]) -> T:
    """Turn exceptions that would end the loop into InferenceFailed."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise InferenceFailed(f"{type(error).__name__}: {error}") from error


def _complete(call: _Call[Any], task: asyncio.Task[Any]) -> None:
    call.work.close()  # in case the task was cancelled before its first step
    if task.cancelled():
        call.ended.set_exception(CancelledError())
    elif (error := task.exception()) is not None:
        call.ended.set_exception(error)
    else:
        call.ended.set_result(task.result())


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
