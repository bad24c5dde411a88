"""Slots, queue, and the exact integral of both."""

from __future__ import annotations

import asyncio

import pytest

from serving.modelserver.base.errors import ClientLeft, Overloaded
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.stats import Stats
from serving.modelserver.execution.admission import Admission, fail
from tests.support.clock import SteppedClock


def load(stats: Stats) -> tuple[int, int]:
    """Active and queued."""
    return stats.active, stats.queued


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def stats(clock: SteppedClock) -> Stats:
    return Stats(clock.monotonic, "m-00001", 1)


async def test_a_slot_goes_to_the_first_of_the_queue(stats: Stats) -> None:
    admission = Admission(1, 2, stats)
    assert admission.try_enter() and not admission.try_enter()
    first, second = admission.join_queue(), admission.join_queue()
    assert load(stats) == (1, 2)
    admission.leave()
    assert first.done() and not second.done()
    assert load(stats) == (1, 1)
    admission.leave()
    admission.leave()
    assert load(stats) == (0, 0)
    assert admission.try_enter()


async def test_beyond_the_queue_all_are_refused(stats: Stats) -> None:
    admission = Admission(1, 1, stats)
    admission.try_enter()
    admission.join_queue()
    with pytest.raises(Overloaded):
        admission.join_queue()
    assert (stats.requests, load(stats)) == (2, (1, 1))


async def test_who_gives_up_is_passed_over(stats: Stats) -> None:
    admission = Admission(1, 3, stats)
    admission.try_enter()
    gone, left, waits = (admission.join_queue() for _ in range(3))
    fail(gone, ClientLeft())
    admission.leave_queue(gone)
    fail(left, ClientLeft())  # and has not said so yet
    admission.leave()
    assert waits.done()
    admission.leave_queue(left)
    assert load(stats) == (1, 0)
    for place in (gone, left):
        assert isinstance(place.exception(), ClientLeft)


async def test_who_gives_up_as_the_slot_arrives_gives_it_back(stats: Stats) -> None:
    admission = Admission(1, 1, stats)
    admission.try_enter()
    place = admission.join_queue()
    admission.leave()
    admission.leave_queue(place)
    assert load(stats) == (0, 0)
    assert admission.try_enter()


async def test_a_slot_is_never_lost_whatever_the_order(stats: Stats) -> None:
    admission = Admission(2, 50, stats)

    async def caller(index: int) -> None:
        if not admission.try_enter():
            place = admission.join_queue()
            if index % 3 == 0:
                asyncio.get_running_loop().call_soon(fail, place, ClientLeft())
            try:
                await place
            except ClientLeft:
                admission.leave_queue(place)
                return
        assert stats.active <= 2
        await asyncio.sleep(0)
        admission.leave()

    await asyncio.gather(*(caller(index) for index in range(40)))
    assert load(stats) == (0, 0)
    assert admission.try_enter() and admission.try_enter() and not admission.try_enter()


async def test_busy_seconds_are_the_exact_integral(stats: Stats, clock: SteppedClock) -> None:
    admission = Admission(1, 5, stats)
    clock.step(10)
    assert stats.busy_seconds == 0
    admission.try_enter()
    clock.step(0.25)
    admission.join_queue()
    clock.step(0.5)
    assert stats.busy_seconds == 0.25 + 2 * 0.5
    admission.leave()
    clock.step(1)
    admission.leave()
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
