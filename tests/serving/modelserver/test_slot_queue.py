"""Slots and queue, and the integral of both over time."""

from __future__ import annotations

import asyncio

import pytest

from serving.modelserver.base.errors import ClientLeft, Overloaded
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.stats import Stats
from serving.modelserver.execution.slot_queue import SlotQueue, fail_future
from tests.support.clock import SteppedClock


def load(stats: Stats) -> tuple[int, int]:
    """Return the numbers of active and queued requests."""
    return stats.active, stats.queued


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def stats(clock: SteppedClock) -> Stats:
    return Stats(clock.monotonic, "m-00001", 1)


async def test_a_slot_goes_to_the_first_of_the_queue(stats: Stats) -> None:
    slots = SlotQueue(1, 2, stats)
    assert slots.try_acquire() and not slots.try_acquire()
    first, second = slots.enqueue(), slots.enqueue()
    assert load(stats) == (1, 2)
    slots.release()
    assert first.done() and not second.done()
    assert load(stats) == (1, 1)
    slots.release()
    slots.release()
    assert load(stats) == (0, 0)
    assert slots.try_acquire()


async def test_beyond_the_queue_all_are_refused(stats: Stats) -> None:
    slots = SlotQueue(1, 1, stats)
    slots.try_acquire()
    slots.enqueue()
    with pytest.raises(Overloaded):
        slots.enqueue()
    assert (stats.requests, load(stats)) == (2, (1, 1))


async def test_who_gives_up_is_passed_over(stats: Stats) -> None:
    slots = SlotQueue(1, 3, stats)
    slots.try_acquire()
    gone, left, waits = (slots.enqueue() for _ in range(3))
    fail_future(gone, ClientLeft())
    slots.abandon(gone)
    fail_future(left, ClientLeft())  # and has not said so yet
    slots.release()
    assert waits.done()
    slots.abandon(left)
    assert load(stats) == (1, 0)
    for place in (gone, left):
        assert isinstance(place.exception(), ClientLeft)


async def test_who_gives_up_as_the_slot_arrives_gives_it_back(stats: Stats) -> None:
    slots = SlotQueue(1, 1, stats)
    slots.try_acquire()
    place = slots.enqueue()
    slots.release()
    slots.abandon(place)
    assert load(stats) == (0, 0)
    assert slots.try_acquire()


async def test_a_request_of_several_slots_takes_them_at_once_and_is_not_overtaken(stats: Stats) -> None:
    slots = SlotQueue(3, 9, stats)
    assert slots.try_acquire(2)
    two, one = slots.enqueue(2), slots.enqueue()
    assert load(stats) == (2, 3) and not slots.try_acquire()  # one slot is free, and `two` is before
    slots.release(2)
    assert two.done() and one.done()
    assert load(stats) == (3, 0)
    waits, behind = slots.enqueue(3), slots.enqueue()
    slots.release(2)
    assert not waits.done() and not behind.done()
    fail_future(waits, ClientLeft())
    slots.abandon(waits, 3)
    assert behind.done() and load(stats) == (2, 0)
    assert isinstance(waits.exception(), ClientLeft)
    slots.abandon(behind)
    slots.release()
    assert load(stats) == (0, 0) and slots.try_acquire(3) and not slots.try_acquire()


async def test_a_slot_is_never_lost_whatever_the_order(stats: Stats) -> None:
    slots = SlotQueue(2, 50, stats)

    async def caller(index: int) -> None:
        count = 1 + index % 2
        if not slots.try_acquire(count):
            place = slots.enqueue(count)
            if index % 3 == 0:
                asyncio.get_running_loop().call_soon(fail_future, place, ClientLeft())
            try:
                await place
            except ClientLeft:
                slots.abandon(place, count)
                return
        assert stats.active <= 2
        await asyncio.sleep(0)
        slots.release(count)

    await asyncio.gather(*(caller(index) for index in range(40)))
    assert load(stats) == (0, 0)
    assert slots.try_acquire() and slots.try_acquire() and not slots.try_acquire()


async def test_busy_seconds_are_the_exact_integral(stats: Stats, clock: SteppedClock) -> None:
    slots = SlotQueue(1, 5, stats)
    clock.step(10)
    assert stats.busy_seconds == 0
    slots.try_acquire()
    clock.step(0.25)
    slots.enqueue()
    clock.step(0.5)
    assert stats.busy_seconds == 0.25 + 2 * 0.5
    slots.release()
    clock.step(1)
    slots.release()
    clock.step(100)
    assert stats.to_json()["busySeconds"] == 0.25 + 2 * 0.5 + 1


def test_memory_for_bodies_is_lent_and_given_back() -> None:
    budget = BodyBudget(100)
    budget.borrow(60)
    with pytest.raises(Overloaded):
        budget.borrow(41)
    budget.borrow(40)
    budget.give_back(100)
    assert budget.lent == 0
