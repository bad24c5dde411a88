"""The hold queue alone: order, slots, and races."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from clusters.base.clock import SystemClock
from clusters.base.objects import Key
from clusters.embedded.activator.control import LoadReporter
from clusters.embedded.activator.proxy.errors import HoldExpired, RevisionFailed, UnknownRevision
from clusters.embedded.activator.throttler import Reservation, RevisionThrottler, Throttler
from clusters.embedded.activator.wire import ActivatorTarget, Loads, RevisionLoad
from clusters.net.endpoints import Endpoint
from tests.support.wait import eventually

KEY = Key("default", "iris-00001")
ONE, TWO = (Endpoint(f"default/{name}", "127.0.0.1", port, port) for name, port in (("one", 1), ("two", 2)))


def target(*endpoints: Endpoint, slots: int = 1, hold: int = 100, timeout: float = 10.0) -> ActivatorTarget:
    return ActivatorTarget(KEY, endpoints, hold, slots, timeout)


def throttle(*endpoints: Endpoint, slots: int = 1, timeout: float = 10.0) -> RevisionThrottler:
    return RevisionThrottler(target(*endpoints, slots=slots, timeout=timeout), lambda _: None, SystemClock())


def request(one: RevisionThrottler) -> asyncio.Task[Reservation]:
    return asyncio.create_task(one.reserve(one.new_request(SystemClock().monotonic())))


async def turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.fault("I5")
async def test_a_caller_that_leaves_in_the_turn_of_its_grant_gives_the_room_back() -> None:
    one = throttle(ONE)
    first = await request(one)
    second, third = request(one), request(one)
    await turns()
    first.release()  # grants the second, which has not run since
    second.cancel()
    await turns()
    assert second.cancelled()
    assert third.done()
    assert one.load == RevisionLoad(0, 1)


async def test_a_caller_that_left_in_the_same_turn_is_passed_over() -> None:
    one = throttle(ONE)
    first = await request(one)
    second, third = request(one), request(one)
    await turns()
    second.cancel()
    first.release()
    await turns()
    assert third.done()
    assert one.load == RevisionLoad(0, 1)


async def test_a_second_release_gives_nothing_back() -> None:
    one = throttle(ONE)
    reservation = await request(one)
    reservation.release()
    reservation.release()
    assert one.load == RevisionLoad(0, 0)


async def test_a_refused_request_keeps_its_place_in_front() -> None:
    one = throttle(ONE)
    pending = one.new_request(SystemClock().monotonic())
    reservation = await one.reserve(pending)
    later = request(one)
    await turns()
    reservation.refused(pending)
    again = asyncio.create_task(one.reserve(pending))
    await turns()
    assert one.load == RevisionLoad(2, 0)  # the endpoint is left alone
    await eventually(again.done)
    assert not later.done()


async def test_requests_go_to_endpoints_in_turn_when_equally_loaded() -> None:
    one = throttle(ONE, TWO, slots=0)
    used = []
    for _ in range(4):
        reservation = await request(one)
        used.append(reservation.endpoint)
        reservation.release()
    assert used == [ONE, TWO, ONE, TWO]


async def test_a_removed_revision_holds_nobody() -> None:
    one = throttle(timeout=0.05)
    pending = one.new_request(SystemClock().monotonic())
    waiting = asyncio.create_task(one.reserve(pending))
    await turns()
    one.remove()
    with pytest.raises(UnknownRevision):
        await waiting
    with pytest.raises(UnknownRevision):
        await one.reserve(pending)


async def test_nobody_waits_for_a_revision_that_cannot_start() -> None:
    one = throttle()
    waiting = request(one)
    await turns()
    one.update(replace(target(), broken=True))
    with pytest.raises(RevisionFailed, match="default/iris-00001 cannot start"):
        await waiting
    with pytest.raises(RevisionFailed):
        await request(one)
    assert one.load == RevisionLoad()


async def test_a_revision_that_could_not_start_is_waited_for_again_once_it_may_and_served_where_it_runs() -> None:
    one = throttle()
    one.update(replace(target(), broken=True))
    one.update(target())
    waiting = request(one)
    await turns()
    assert one.load == RevisionLoad(queued=1)
    one.update(replace(target(ONE), broken=True))
    (await waiting).release()
    (await request(one)).release()


async def test_an_expired_request_leaves_no_trace() -> None:
    one = throttle(timeout=0.01)
    with pytest.raises(HoldExpired):
        await request(one)
    assert one.load == RevisionLoad()


async def test_only_the_first_request_to_a_revision_without_endpoints_woke_it() -> None:
    one = throttle()
    now = SystemClock().monotonic()
    first = one.new_request(now)
    waiting = asyncio.create_task(one.reserve(first))
    await turns()
    assert first.first
    assert not one.new_request(now).first
    one.update(target(ONE))
    (await waiting).release()
    assert not one.new_request(now).first


async def test_an_endpoint_that_is_named_again_still_has_what_runs_on_it() -> None:
    one = throttle(ONE, slots=1)
    reservation = await request(one)
    one.update(target())
    one.update(target(ONE))
    waiting = request(one)
    await turns()
    assert one.load == RevisionLoad(queued=1, active=1)
    reservation.release()
    (await waiting).release()
    assert one.load == RevisionLoad()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.fault("I5")
async def test_random_schedules_keep_all_counts(seed: int) -> None:
    """Random arrivals, cancellations, refusals and targets: slots are respected, and all counts return to zero."""
    source = random.Random(seed)
    slots = source.choice([1, 2, 3])
    one = throttle(slots=slots)
    at_work: dict[Endpoint, int] = {ONE: 0, TWO: 0}

    async def request() -> None:
        pending = one.new_request(SystemClock().monotonic())
        reservation = await one.reserve(pending)
        at_work[reservation.endpoint] += 1
        try:
            assert at_work[reservation.endpoint] <= slots
            await turns(source.randrange(5))
        finally:
            at_work[reservation.endpoint] -= 1
            reservation.release()

    tasks = []
    for _ in range(150):
        match source.randrange(6):
            case 0 | 1 | 2:
                tasks.append(asyncio.create_task(request()))
            case 3:
                if tasks:
                    source.choice(tasks).cancel()
            case 4:
                one.update(target(ONE, TWO, slots=slots))
            case _:
                await turns(source.randrange(3))
    one.update(target(ONE, TWO, slots=slots))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert one.load == RevisionLoad()


async def test_requests_of_unknown_revisions_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusters.embedded.activator.throttler.UNKNOWN_TIMEOUT", 0.01)
    throttler = Throttler(lambda _: None, SystemClock())
    waits = (throttler.revision(Key("default", str(number))) for number in range(10))
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(outcome, UnknownRevision) for outcome in outcomes)
    assert throttler._unknown == {}


class Told:
    """A report over one revision whose load the test sets, and what it told."""

    def __init__(self) -> None:
        self.load = RevisionLoad()
        self.has_endpoints = False
        self.told: list[RevisionLoad] = []
        self.report = LoadReporter()
        self.report.observe(lambda _: self.load, lambda _: self.has_endpoints)
        self.report.subscribe(self._take)

    def _take(self, loads: Loads) -> None:
        self.told += loads.values()

    def set(self, queued: int, active: int = 0) -> None:
        self.load = RevisionLoad(queued, active)
        self.report.changed(KEY)


async def test_a_queue_that_begins_is_told_at_once_and_the_rest_is_gathered() -> None:
    told = Told()
    for queued in (1, 2, 3):
        told.set(queued)
    assert told.told == [RevisionLoad(1)]
    await eventually(lambda: told.told == [RevisionLoad(1), RevisionLoad(3)])


async def test_a_wake_from_zero_never_waits_for_what_is_being_gathered() -> None:
    told = Told()
    told.set(1)
    told.set(0)
    await eventually(lambda: told.told == [RevisionLoad(1), RevisionLoad(0)])
    told.set(0, 1)
    told.set(1, 1)
    assert told.told[-1] == RevisionLoad(1, 1)


async def test_passing_requests_are_gathered() -> None:
    told = Told()
    told.has_endpoints = True
    for active in range(1, 100):
        told.set(0, active)
    assert told.told == []
    await eventually(lambda: told.told == [RevisionLoad(0, 99)])
