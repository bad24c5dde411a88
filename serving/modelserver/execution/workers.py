"""Worker threads for work that would block the event loop: inferences, and loads in a server of many models.

This is not `concurrent.futures`, for two reasons. An executor joins its threads at interpreter exit, so one hanging
inference would keep the process alive. And its futures cost more than a small inference does. Threads are started on
demand.

A job without a waiting caller is cancelled, but keeps its place until it ends, because engines need not react at once.
A job that does not end within a grace period hangs: it is counted separately, and another thread takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled
from serving.modelserver.base.errors import NotReady, ServingError, release_frames
from serving.modelserver.base.limits import NO_LEASE, Lease, ServerLimits

T = TypeVar("T")
Job = Callable[[Cancellation], T]

log = logging.getLogger(__name__)

GRACE: Final = 10.0  # s for a cancelled inference to end; nearly all on a CPU take less
MAX_HUNG: Final = 16  # hanging threads beyond which no further threads are started
_HUNG_SHARE: Final = 2  # hanging threads may hold one half of all memory for bodies; then large requests find none
MAX_WAITING: Final = 500  # threads of 45 kB each; with more, calls of 0.1 s got slower and throughput fell
STACK_MEMORY: Final = 512 << 20  # bytes of the stacks of all waiting threads; a replica of the embedded cluster has it
_LEVEL: Final = 350  # bytes of stack for a level of nesting: msgspec takes about 300
_MEBIBYTE: Final = 1 << 20
_C_LEVELS: Final = 10_000  # of C code from Python 3.12 on, whatever the recursion limit is (`Py_C_RECURSION_LIMIT`)


class HungThreads:
    """The threads of a server that hang, and the memory of the request bodies that they hold.

    At most `MAX_HUNG` threads and half of `bodies` bytes may hang before the server needs a restart. Not thread-safe:
    only the event loop may use it.
    """

    def __init__(self, bodies: int) -> None:
        self._most_bytes = bodies // _HUNG_SHARE
        self._threads = 0
        self._bytes = 0
        self.device_lost = asyncio.Event()
        """Set when no call on the accelerator can succeed in this process any more."""

    @property
    def exceeds_limit(self) -> bool:
        """Whether so much hangs that only a restart helps."""
        return self._threads >= MAX_HUNG or self._bytes > self._most_bytes

    def add(self, size: int) -> None:
        """Count a hanging thread whose request body has `size` bytes."""
        self._threads += 1
        self._bytes += size

    def remove(self, size: int) -> None:
        """Stop counting a hanging thread that has ended after all."""
        self._threads -= 1
        self._bytes -= size


class RunningJob(Generic[T]):
    """A submitted job. `result` completes with the job's result, or with an error when the job was cancelled."""

    __slots__ = ("_on_release", "body", "cancellation", "finished", "hung", "job", "result", "started", "timer")

    def __init__(
        self, job: Job[T], result: asyncio.Future[T], on_release: Callable[[], object] | None, body: Lease
    ) -> None:
        self.job = job
        self.body = body
        self.result = result
        self.cancellation = Cancellation()
        self.started = False  # in a thread
        self.finished = False  # the thread has run it
        self.hung = False  # it was cancelled, and has not ended within the grace period
        self.timer: asyncio.TimerHandle | None = None  # of the grace period
        self._on_release = on_release

    def release(self) -> None:
        """Call `on_release`, once: the job no longer counts as inside the model."""
        callback, self._on_release = self._on_release, None
        if callback is not None:
            callback()


class Workers:
    """A pool of at most `size` threads, not counting those that hang, which `hung` counts for the whole server.

    `grace` is in seconds. Not thread-safe: only the event loop `loop` may use it.
    """

    def __init__(
        self, size: int, loop: asyncio.AbstractEventLoop, grace: float = GRACE, hung: HungThreads | None = None
    ) -> None:
        self.hung = hung or HungThreads(ServerLimits().body_memory)
        self._size = size
        self._stack = 0
        self._loop = loop
        self._grace = grace
        self._lock = threading.Lock()  # of `finished` and `hung`: only one of them may be set first
        self._jobs: SimpleQueue[RunningJob[Any] | None] = SimpleQueue()
        self._threads = 0
        self._closed = False
        self._outstanding = 0
        self._idle: asyncio.Event | None = None  # set when no job is left; None while `wait_idle` is not in use
        self._hung = 0

    @property
    def exhausted(self) -> bool:
        """Whether so many jobs hang that no further jobs are started."""
        return self._hung >= MAX_HUNG

    async def wait_idle(self) -> None:
        """Return when no job is running, cancelled ones included."""
        if self._outstanding:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    def resize(self, size: int, stack: int = 0) -> None:
        """Allow `size` jobs at once from now on; existing threads remain.

        New threads get a stack of `stack` bytes; 0 means the default size.
        """
        self._size, self._stack = size, stack

    def submit(
        self, job: Job[T], on_release: Callable[[], object] | None = None, body: Lease = NO_LEASE
    ) -> RunningJob[T]:
        """Run `job` in a thread, as soon as one is free.

        `on_release` is called once: when the job has ended, hangs, or was cancelled before it started. `body` is in use
        until no thread needs it, which may be never for a job that hangs. Raises NotReady, and uses neither of them
        then.
        """
        if self.exhausted:
            raise NotReady(f"{self._hung} threads hang: the server needs a restart")
        if self._closed:
            raise NotReady("the model is not loaded any more: try again")
        self._add_thread(self._outstanding + 1)
        self._outstanding += 1
        body.retain()
        running = RunningJob(job, self._loop.create_future(), on_release, body)
        self._jobs.put(running)
        return running

    async def run_within(self, seconds: float, job: Job[T], late: ServingError) -> T:
        """Return the result of `job`; cancel it and raise `late` when it takes longer than `seconds`.

        The time starts anew as long as the job waits for a thread. Raises NotReady as `submit` does.
        """
        running = self.submit(job)
        self._cancel_after(seconds, running, late)
        try:
            return await running.result
        except asyncio.CancelledError:
            self.cancel_if_abandoned(running)
            raise

    def _cancel_after(self, seconds: float, running: RunningJob[Any], late: ServingError) -> None:
        def check() -> None:
            if running.started:
                self.cancel(running, late)
            else:
                self._cancel_after(seconds, running, late)

        timer = self._loop.call_later(seconds, check)
        running.result.add_done_callback(lambda _: timer.cancel())

    def cancel(self, running: RunningJob[Any], error: ServingError) -> None:
        """Set `error` as the result and request cancellation of the job, unless it has a result."""
        if not running.result.done():
            running.result.set_exception(error)
            self._cancel_job(running)

    def cancel_if_abandoned(self, running: RunningJob[Any]) -> None:
        """Request cancellation of a job whose waiting task was cancelled, unless it had a result by then."""
        if running.result.cancelled():
            self._cancel_job(running)

    def close(self) -> None:
        """Accept no further jobs and let idle threads end."""
        self._closed = True
        for _ in range(self._threads):
            self._jobs.put(None)

    def _add_thread(self, jobs: int) -> None:
        """Start a thread if `jobs` jobs need one more. Raises NotReady without any usable thread."""
        if jobs <= self._threads or self._threads >= self._size + self._hung:
            return
        thread = threading.Thread(target=self._work, name=f"inference-{self._threads + 1}", daemon=True)
        try:
            with _stack_size(self._stack):
                thread.start()
        except RuntimeError as error:  # the container's limit of threads may be reached
            if self._threads == self._hung:
                raise NotReady("no thread can be started for the model: try again") from error
        else:
            self._threads += 1

    def _cancel_job(self, running: RunningJob[Any]) -> None:
        running.cancellation.cancel()
        # A thread first sets `started` and then reads the cancellation. Here the order is reversed, so that every
        # inference that keeps running is counted.
        if running.started:
            running.timer = self._loop.call_later(self._grace, self._count_as_hung, running)
        else:
            running.release()

    def _count_as_hung(self, running: RunningJob[Any]) -> None:
        with self._lock:
            if running.finished:
                return
            running.hung = True
        self._hung += 1
        self.hung.add(running.body.size)
        log.warning("a thread hangs: its job was cancelled %g s ago and has not ended", self._grace)
        running.release()
        with contextlib.suppress(NotReady):  # the next call of `submit` raises it
            self._add_thread(self._outstanding)

    def _work(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Run a job; return whether this thread goes on.

        A function of its own, so that a waiting thread keeps no reference to the last job.
        """
        running = self._jobs.get()
        if running is None:
            return False
        result, error = _run(running)
        with self._lock:
            running.finished = True
        try:
            self._loop.call_soon_threadsafe(self._finish, running, result, error)
        except RuntimeError:  # the loop is closed: the process ends
            return False
        return not running.hung  # another thread has taken its place

    def _finish(self, running: RunningJob[Any], result: Any, error: BaseException | None) -> None:
        self._outstanding -= 1
        if not self._outstanding and self._idle is not None:
            self._idle.set()
            self._idle = None
        if running.timer is not None:
            running.timer.cancel()
        if running.hung:
            self._hung -= 1
            self._threads -= 1
            self.hung.remove(running.body.size)
        if not running.result.done():
            if error is not None:
                running.result.set_exception(error)
            else:
                running.result.set_result(result)
        elif error is not None:
            release_frames(error)
        try:
            running.release()
        finally:
            running.body.release()


@contextlib.contextmanager
def _stack_size(size: int) -> Iterator[None]:
    """Set the stack size in bytes of all threads that are started meanwhile, in the whole process; 0 sets nothing."""
    if not size:
        yield
        return
    before = threading.stack_size(size)
    try:
        yield
    finally:
        threading.stack_size(before)


def _run(running: RunningJob[T]) -> tuple[T | None, BaseException | None]:
    running.started = True
    if running.cancellation.cancelled:
        return None, Cancelled("cancelled before it began")
    try:
        return running.job(running.cancellation), None
    except StopIteration as error:  # a future does not accept it
        return None, RuntimeError(f"StopIteration: {error}")
    except BaseException as error:  # raised to the caller by the future
        return None, error


def nesting_limit() -> int:
    """Return how deep code may nest in this process now; a model may have changed the recursion limit on load."""
    return max(sys.getrecursionlimit(), _C_LEVELS if sys.version_info >= (3, 12) else 0)


def stack_for(levels: int) -> int:
    """Return the stack size for so many levels of nesting, in bytes, rounded up to whole MiB.

    The depth is the caller's choice: the threads decode JSON, up to the recursion limit. Measured with msgspec, 1 MiB
    holds 3 000 levels and 3 MiB hold 10 000.
    """
    return -(-levels * _LEVEL // _MEBIBYTE) * _MEBIBYTE


def waiting_threads(slots: int, stack: int) -> int:
    """Return the number of threads, at least one, for a model whose inferences mostly wait for another process.

    The whole stack of a thread is mapped, though only used as deep as code nests, and RLIMIT_DATA counts mapped memory
    (`clusters/embedded/kubelet/process/limits.py`). So the stacks, of `stack` bytes each, may take `STACK_MEMORY`.
    """
    return max(1, min(slots, MAX_WAITING, STACK_MEMORY // stack))
