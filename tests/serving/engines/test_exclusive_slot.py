"""One inference at a time: cancelled waiters, hanging inferences, and stalled readers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InferenceFailed
from serving.engines.base.exclusive_slot import HANG_AFTER, STALL_TIMEOUT, ExclusiveSlot
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def slot(clock: SteppedClock) -> ExclusiveSlot:
    return ExclusiveSlot(clock.monotonic)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def waits(slot: ExclusiveSlot, cancellation: Cancellation) -> bool:
    with slot.acquire(cancellation):
        return True


async def waiting(
    slot: ExclusiveSlot, pool: ThreadPoolExecutor, *cancellations: Cancellation, before: int = 0
) -> list[Future[bool]]:
    """Queue a thread for each cancellation, behind `before` others."""
    asked = [pool.submit(waits, slot, cancellation) for cancellation in cancellations]
    changed: Any = slot._changed
    await eventually(lambda: bool(len(changed._waiters) == before + len(asked)))
    return asked


async def test_who_leaves_the_queue_is_gone_at_once_while_the_inference_goes_on(
    slot: ExclusiveSlot, pool: ThreadPoolExecutor
) -> None:
    leaves, stays = Cancellation(), Cancellation()
    with slot.acquire(None):
        left, stayed = await waiting(slot, pool, leaves, stays)
        leaves.cancel()
        with pytest.raises(Cancelled):
            left.result(10)
        assert not stayed.done()
    assert stayed.result(10)


async def test_who_waits_behind_an_inference_that_hangs_hangs_with_it(
    slot: ExclusiveSlot, clock: SteppedClock, pool: ThreadPoolExecutor
) -> None:
    own, early, late = Cancellation(), Cancellation(), Cancellation()
    with ExitStack() as inference:
        inference.enter_context(slot.acquire(own))
        own.cancel()
        first, second = await waiting(slot, pool, early, late)
        clock.step(HANG_AFTER)
        early.cancel()
        with pytest.raises(Cancelled):  # it may still end by itself
            first.result(10)
        clock.step(1)
        late.cancel()
        (third,) = await waiting(slot, pool, Cancellation(), before=1)  # who left has had its chance since
        assert not second.done()
    with pytest.raises(Cancelled):
        second.result(10)
    assert third.result(10)


async def test_a_turn_whose_parts_are_not_taken_goes_to_who_waits(
    slot: ExclusiveSlot, clock: SteppedClock, pool: ThreadPoolExecutor
) -> None:
    ended: list[str] = []
    with (
        pytest.raises(InferenceFailed, match="no part of the response was read"),
        slot.acquire(None, lambda: ended.append(threading.current_thread().name)) as mine,
        slot.sending(mine),
    ):
        (other,) = await waiting(slot, pool, Cancellation())
        clock.step(STALL_TIMEOUT)
        slot._notify_waiters()
        assert other.result(10)
        assert len(ended) == 1 and ended != [threading.current_thread().name]
    assert len(ended) == 1
    with slot.acquire(None):
        pass


def test_a_turn_that_nobody_else_wants_is_kept_however_slowly_its_parts_are_taken(
    slot: ExclusiveSlot, clock: SteppedClock
) -> None:
    ended: list[bool] = []
    with slot.acquire(None, lambda: ended.append(True)) as mine:
        for _ in range(3):
            with slot.sending(mine):
                clock.step(10 * STALL_TIMEOUT)
        assert not ended
    assert ended == [True]


@pytest.mark.parametrize("cancelled", [False, True])
def test_many_threads_are_never_two_inside_and_all_end(cancelled: bool) -> None:
    slot, inside, most = ExclusiveSlot(), 0, 0

    def infer(number: int) -> bool:
        nonlocal inside, most
        cancellation = Cancellation()
        if cancelled and number % 2:
            threading.Timer(0.001 * number, cancellation.cancel).start()
        try:
            with slot.acquire(cancellation):
                inside += 1
                most = max(most, inside)
                inside -= 1
                return True
        except Cancelled:
            return False

    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(infer, range(64)))
    assert most == 1 and all(done[::2])
    assert cancelled or all(done)
