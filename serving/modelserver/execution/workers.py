"""Threads for what is too long for the event loop: inferences, and the loads of a server of many models.

Not `concurrent.futures`: an executor waits for its threads when the process ends, so that one inference that hangs
would keep the process; and its futures cost more than a small inference does. Threads start when they are needed.

A job that nobody waits for any more is asked to end and keeps its place until it has, for engines need not obey at
once. One that does not end within a grace hangs: it counts apart from then on, and another thread takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled
from serving.modelserver.base.errors import NotReady, ServingError, release_frames
from serving.modelserver.base.limits import NO_LEASE, Lease, ServerLimits
from serving.modelserver.execution.hanging import MOST_THREADS, Hanging

T = TypeVar("T")
Job = Callable[[Cancellation], T]

log = logging.getLogger(__name__)

GRACE: Final = 10.0  # s for an inference to end when nobody waits for it; nearly all on a CPU take less


class Running(Generic[T]):
    """A job on its way; `answer` is done with the result, or when nobody waits any more."""

    __slots__ = ("_on_release", "answer", "begun", "body", "cancellation", "job", "over", "stuck", "timer")

    def __init__(
        self, job: Job[T], answer: asyncio.Future[T], on_release: Callable[[], object] | None, body: Lease
    ) -> None:
        self.job = job
        self.body = body
        self.answer = answer
        self.cancellation = Cancellation()
        self.begun = False  # in a thread
        self.over = False  # the thread has done it
        self.stuck = False  # nobody waits any more, and the grace was over first
        self.timer: asyncio.TimerHandle | None = None  # of the grace
        self._on_release = on_release

    def release(self) -> None:
        """It counts as inside of the model no more; said once, however often this is called."""
        tell, self._on_release = self._on_release, None
        if tell is not None:
            tell()


class Workers:
    """At most `size` jobs at once, apart from those that hang, which are counted in `hanging` too.

    Used by the event loop `loop`; `grace` in seconds.
    """

    def __init__(
        self, size: int, loop: asyncio.AbstractEventLoop, grace: float = GRACE, hanging: Hanging | None = None
    ) -> None:
        self.hanging = hanging or Hanging(ServerLimits().body_memory)
        self._size = size
        self._stack = 0
        self._loop = loop
        self._grace = grace
        self._lock = threading.Lock()  # of `over` and `stuck`: only one of them comes first
        self._jobs: SimpleQueue[Running[Any] | None] = SimpleQueue()
        self._threads = 0
        self._closed = False
        self._outstanding = 0
        self._idle: asyncio.Event | None = None  # of whoever waits for that
        self._stuck = 0

    @property
    def exhausted(self) -> bool:
        """Whether so many jobs hang that no more are begun."""
        return self._stuck >= MOST_THREADS

    async def idle(self) -> None:
        """Return when no job is under way, those that nobody waits for included."""
        if self._outstanding:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    def resize(self, size: int, stack: int = 0) -> None:
        """At most `size` jobs at once from now on; threads that there are stay.

        New ones have so many bytes of `stack`, 0: as any thread that is started.
        """
        self._size, self._stack = size, stack

    def submit(self, job: Job[T], on_release: Callable[[], object] | None = None, body: Lease = NO_LEASE) -> Running[T]:
        """Begin `job` in a thread, or as soon as one is free.

        `on_release` is called once: when the job has ended, hangs, or was given up before it began; `body` is used
        until no thread has it any more, which of one that hangs may be never. Raises NotReady: neither is touched.
        """
        if self.exhausted:
            raise NotReady(f"{self._stuck} threads hang: the server needs a restart")
        if self._closed:
            raise NotReady("the model is not loaded any more: try again")
        self._add_thread(self._outstanding + 1)
        self._outstanding += 1
        body.retain()
        running = Running(job, self._loop.create_future(), on_release, body)
        self._jobs.put(running)
        return running

    async def within(self, seconds: float, job: Job[T], late: ServingError) -> T:
        """The result of `job`, for which nobody waits any longer than that: then it is `late` that is raised.

        One that has to wait for a thread is waited for until it has had one. Raises NotReady as `submit` does.
        """
        running = self.submit(job)
        self._end_after(seconds, running, late)
        try:
            return await running.answer
        except asyncio.CancelledError:
            self.abandon(running)
            raise

    def _end_after(self, seconds: float, running: Running[Any], late: ServingError) -> None:
        """Give it up after its time, which begins anew while it waits for a thread."""

        def look() -> None:
            if running.begun:
                self.give_up(running, late)
            else:
                self._end_after(seconds, running, late)

        timer = self._loop.call_later(seconds, look)
        running.answer.add_done_callback(lambda _: timer.cancel())

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
        """Let idle threads end; nothing is begun any more."""
        self._closed = True
        for _ in range(self._threads):
            self._jobs.put(None)

    def _add_thread(self, jobs: int) -> None:
        """If so many `jobs` need one more. Raises NotReady when there is none that could do them."""
        if jobs <= self._threads or self._threads >= self._size + self._stuck:
            return
        thread = threading.Thread(target=self._work, name=f"inference-{self._threads + 1}", daemon=True)
        try:
            with _stack_of(self._stack):
                thread.start()
        except RuntimeError as error:  # the container may have no more of them
            if self._threads == self._stuck:
                raise NotReady("no thread can be started for the model: try again") from error
        else:
            self._threads += 1

    def _leave_alone(self, running: Running[Any]) -> None:
        running.cancellation.cancel()
        # A thread sets `begun` and then looks whether it is cancelled; here it is the other way round, so that every
        # inference that runs on is counted.
        if running.begun:
            running.timer = self._loop.call_later(self._grace, self._count_as_stuck, running)
        else:
            running.release()

    def _count_as_stuck(self, running: Running[Any]) -> None:
        with self._lock:
            if running.over:
                return
            running.stuck = True
        self._stuck += 1
        self.hanging.add(running.body.size)
        log.warning("a thread hangs: nobody has waited for its work for %g s, and it does not end", self._grace)
        running.release()
        with contextlib.suppress(NotReady):  # whoever comes next is told
            self._add_thread(self._outstanding)

    def _work(self) -> None:
        while self._do_next():
            pass

    def _do_next(self) -> bool:
        """Do a job; whether there is another one for this thread. Nothing of a job is kept while it waits."""
        running = self._jobs.get()
        if running is None:
            return False
        result, error = _outcome(running)
        with self._lock:
            running.over = True
        try:
            self._loop.call_soon_threadsafe(self._finish, running, result, error)
        except RuntimeError:  # the loop is closed: the process ends
            return False
        return not running.stuck  # another thread has taken its place

    def _finish(self, running: Running[Any], result: Any, error: BaseException | None) -> None:
        self._outstanding -= 1
        if not self._outstanding and self._idle is not None:
            self._idle.set()
            self._idle = None
        if running.timer is not None:
            running.timer.cancel()
        if running.stuck:
            self._stuck -= 1
            self._threads -= 1
            self.hanging.remove(running.body.size)
        if not running.answer.done():
            if error is not None:
                running.answer.set_exception(error)
            else:
                running.answer.set_result(result)
        elif error is not None:
            release_frames(error)
        try:
            running.release()
        finally:
            running.body.release()


@contextlib.contextmanager
def _stack_of(size: int) -> Iterator[None]:
    """Threads that begin meanwhile, whoever's they are, have so many bytes of stack; 0 changes nothing."""
    if not size:
        yield
        return
    before = threading.stack_size(size)
    try:
        yield
    finally:
        threading.stack_size(before)


def _outcome(running: Running[T]) -> tuple[T | None, BaseException | None]:
    running.begun = True
    if running.cancellation.cancelled:
        return None, Cancelled("cancelled before it began")
    try:
        return running.job(running.cancellation), None
    except StopIteration as error:  # no future takes one
        return None, RuntimeError(f"StopIteration: {error}")
    except BaseException as error:  # goes to whoever waits
        return None, error
