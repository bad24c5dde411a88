"""Threads for inferences that are too long for the event loop.

Not `concurrent.futures`: an executor waits for its threads when the process ends, so that one inference that hangs
would keep the process; and its futures cost more than a small inference does. Threads start when they are needed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from serving.engines.base import Cancellation
from serving.engines.errors import Cancelled
from serving.server.errors import NotReady, ServingError

T = TypeVar("T")
Job = Callable[[Cancellation], T]

MOST_STUCK: Final = 16  # inferences that nobody waits for and that do not end: a thread each, until there is no sense


class Running(Generic[T]):
    """A job on its way; `answer` is done with the result, or when nobody waits any more."""

    __slots__ = ("answer", "begun", "cancellation", "job", "stuck")

    def __init__(self, job: Job[T], answer: asyncio.Future[T]) -> None:
        self.job = job
        self.answer = answer
        self.cancellation = Cancellation()
        self.begun = False  # in a thread
        self.stuck = False  # begun, and nobody waits any more


class Workers:
    """At most `size` jobs at once, apart from those that hang. Used by the event loop `loop`."""

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self._size = size
        self._loop = loop
        self._jobs: SimpleQueue[Running[Any] | None] = SimpleQueue()
        self._threads = 0
        self._outstanding = 0
        self._stuck = 0

    @property
    def exhausted(self) -> bool:
        """Whether so many inferences hang that no more are begun."""
        return self._stuck >= MOST_STUCK

    def resize(self, size: int) -> None:
        """At most `size` jobs at once from now on; threads that there are stay."""
        self._size = size

    def submit(self, job: Job[T]) -> Running[T]:
        """Begin `job` in a thread, or as soon as one is free. Raises NotReady."""
        if self.exhausted:
            raise NotReady(f"{self._stuck} inferences hang: the model needs a restart")
        running = Running(job, self._loop.create_future())
        self._outstanding += 1
        if self._outstanding > self._threads and self._threads < self._size + self._stuck:
            self._threads += 1
            threading.Thread(target=self._work, name=f"inference-{self._threads}", daemon=True).start()
        self._jobs.put(running)
        return running

    def give_up(self, running: Running[Any], error: ServingError) -> None:
        """Nobody waits any more: ask the inference to end, and go on without it."""
        if not running.answer.done():
            running.answer.set_exception(error)
            self._leave_alone(running)

    def abandon(self, running: Running[Any]) -> None:
        """As `give_up`, by the task that waited and was cancelled; nothing when the answer was there by then."""
        if running.answer.cancelled():
            self._leave_alone(running)

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _leave_alone(self, running: Running[Any]) -> None:
        running.cancellation.cancel()
        # A thread sets `begun` and then looks whether it is cancelled; here it is the other way round, so that every
        # inference that runs on is counted.
        if running.begun:
            running.stuck = True
            self._stuck += 1

    def _work(self) -> None:
        while (running := self._jobs.get()) is not None:
            result, error = _outcome(running)
            try:
                self._loop.call_soon_threadsafe(self._finish, running, result, error)
            except RuntimeError:  # the loop is closed: the process ends
                return

    def _finish(self, running: Running[Any], result: Any, error: BaseException | None) -> None:
        self._outstanding -= 1
        if running.stuck:
            self._stuck -= 1
        if running.answer.done():
            return
        if error is not None:
            running.answer.set_exception(error)
        else:
            running.answer.set_result(result)


def _outcome(running: Running[T]) -> tuple[T | None, BaseException | None]:
    running.begun = True
    if running.cancellation.cancelled:
        return None, Cancelled("cancelled before it began")
    try:
        return running.job(running.cancellation), None
    except BaseException as error:  # goes to whoever waits
        return None, error
