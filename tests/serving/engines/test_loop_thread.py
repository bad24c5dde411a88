"""An event loop that code of a model blocks: cancelled calls, and calls that hang with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled
from serving.engines.base.exclusive_slot import HANG_AFTER
from serving.engines.python.loop_thread import LoopThread
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


class Blocked:
    """A loop that is blocked until `go` is set."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.loop = LoopThread("blocked", self.clock.monotonic)
        self.pool = ThreadPoolExecutor(4)
        self.go = threading.Event()
        self.begun: list[str] = []
        inside = threading.Event()

        async def block() -> None:
            inside.set()
            self.go.wait(10)

        self.first = self.pool.submit(self.loop.run, block())
        assert inside.wait(10)

    async def asked(self, name: str, cancellation: Cancellation) -> Future[None]:
        """Submit a call that the loop cannot start yet."""

        async def work() -> None:
            self.begun.append(name)

        before = len(self.loop._queued_at)
        made = self.pool.submit(self.loop.run, work(), cancellation)
        await eventually(lambda: len(self.loop._queued_at) > before and cancellation._stop is not None)
        return made


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    made = Blocked()
    yield made
    made.go.set()
    made.pool.shutdown()
    made.loop.close()


async def test_who_waits_for_a_loop_that_is_busy_leaves_at_once_and_is_never_begun(blocked: Blocked) -> None:
    cancellation = Cancellation()
    leaving = await blocked.asked("leaving", cancellation)
    staying = await blocked.asked("staying", Cancellation())
    cancellation.cancel()
    with pytest.raises(Cancelled):
        leaving.result(10)
    blocked.go.set()
    assert staying.result(10) is None
    assert blocked.begun == ["staying"]


async def test_who_waits_for_a_loop_that_has_been_blocked_for_long_hangs_with_it(blocked: Blocked) -> None:
    early, late = Cancellation(), Cancellation()
    first = await blocked.asked("early", early)
    early.cancel()
    with pytest.raises(Cancelled):
        first.result(10)
    blocked.clock.step(HANG_AFTER + 1)
    second = await blocked.asked("late", late)
    late.cancel()
    with pytest.raises(TimeoutError):
        second.result(0.05)
    blocked.go.set()
    with pytest.raises(Cancelled):
        second.result(10)
