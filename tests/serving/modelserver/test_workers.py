"""Worker threads, including threads that hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from serving.engines.base.engine import Cancellation
from serving.modelserver.base.errors import DeadlineExceeded, NotReady
from serving.modelserver.base.limits import Lease
from serving.modelserver.execution.workers import MAX_HUNG, HungThreads, Workers
from tests.support.wait import eventually

LATE = DeadlineExceeded("late")


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    """Run one job at a time, with no grace period: a cancelled job hangs."""
    made = Workers(1, asyncio.get_running_loop(), grace=0.0)
    yield made
    made.close()


@pytest.fixture
async def patient() -> AsyncIterator[Workers]:
    """Run one job at a time, with an endless grace period."""
    made = Workers(1, asyncio.get_running_loop(), grace=1000.0)
    yield made
    made.close()


async def hang(workers: Workers, release: threading.Event) -> None:
    """Start a job that ends with `release`, and cancel it."""
    running = workers.submit(lambda _: release.wait(10))
    await eventually(lambda: running.started)
    workers.cancel(running, LATE)
    with pytest.raises(DeadlineExceeded):
        await running.result
    await eventually(lambda: running.hung)


async def test_results_and_exceptions_come_back(workers: Workers) -> None:
    assert await workers.submit(lambda _: 7).result == 7

    def fails(_: Cancellation) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await workers.submit(fails).result


async def test_an_iteration_that_ends_in_a_job_is_an_exception_as_others(workers: Workers) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await workers.submit(lambda _: next(iter(()))).result


async def test_nothing_is_begun_once_they_are_closed(workers: Workers) -> None:
    workers.close()
    with pytest.raises(NotReady, match="not loaded any more"):
        workers.submit(lambda _: None)


async def test_an_inference_that_hangs_takes_no_thread_from_others(workers: Workers) -> None:
    release = threading.Event()
    await hang(workers, release)
    assert await workers.submit(lambda _: 7).result == 7
    release.set()


async def test_an_inference_is_asked_to_end_when_nobody_waits(workers: Workers) -> None:
    begun, asked = threading.Event(), threading.Event()

    def obeys(cancellation: Cancellation) -> bool:
        cancellation.on_cancel(asked.set)
        begun.set()
        return asked.wait(10)

    running = workers.submit(obeys)
    await eventually(begun.is_set)
    workers.cancel(running, LATE)
    await eventually(asked.is_set)
    with pytest.raises(DeadlineExceeded):
        await running.result


async def test_who_waits_for_a_job_within_a_time_is_told_when_it_is_over(workers: Workers) -> None:
    release = threading.Event()
    assert await workers.run_within(10.0, lambda _: 7, LATE) == 7
    with pytest.raises(DeadlineExceeded):
        await workers.run_within(0.0, lambda _: release.wait(10), LATE)
    left = asyncio.create_task(workers.run_within(1000.0, lambda cancellation: release.wait(10), LATE))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert await workers.run_within(10.0, lambda _: 7, LATE) == 7
    release.set()


async def test_what_nobody_waits_for_is_not_begun(workers: Workers) -> None:
    release, begun = threading.Event(), threading.Event()
    first = workers.submit(lambda _: release.wait(10))
    second = workers.submit(lambda _: begun.set())
    workers.cancel(second, LATE)
    release.set()
    assert await first.result
    assert await workers.submit(lambda _: 7).result == 7
    assert not begun.is_set()
    assert isinstance(second.result.exception(), DeadlineExceeded)


async def test_when_too_many_hang_no_more_are_begun_until_they_end(workers: Workers) -> None:
    release = threading.Event()
    for _ in range(MAX_HUNG):
        await hang(workers, release)
    assert workers.exhausted
    with pytest.raises(NotReady):
        workers.submit(lambda _: 7)
    release.set()
    await eventually(lambda: not workers.exhausted)
    assert await workers.submit(lambda _: 7).result == 7


async def test_what_nobody_waits_for_keeps_its_place_until_it_ends(patient: Workers) -> None:
    release, told = threading.Event(), []
    first = patient.submit(lambda _: release.wait(10), lambda: told.append("first"))
    await eventually(lambda: first.started)
    patient.cancel(first, LATE)
    with pytest.raises(DeadlineExceeded):
        await first.result
    second = patient.submit(lambda _: 7, lambda: told.append("second"))
    unwanted = patient.submit(lambda _: 8, lambda: told.append("unwanted"))
    patient.cancel(unwanted, LATE)
    assert isinstance(unwanted.result.exception(), DeadlineExceeded)
    assert (told, second.started) == (["unwanted"], False)
    release.set()
    assert await second.result == 7
    assert told == ["unwanted", "first", "second"]


async def test_what_hangs_loses_its_place_when_its_grace_is_over(workers: Workers) -> None:
    release, told = threading.Event(), []
    hangs = workers.submit(lambda _: release.wait(10), lambda: told.append("hangs"))
    await eventually(lambda: hangs.started)
    waits = workers.submit(lambda _: 7)
    workers.cancel(hangs, LATE)
    assert isinstance(hangs.result.exception(), DeadlineExceeded)
    assert await waits.result == 7
    assert told == ["hangs"]
    release.set()
    await eventually(lambda: hangs.finished)
    assert told == ["hangs"]


async def test_when_what_hung_has_ended_there_are_no_more_jobs_at_once_than_before(workers: Workers) -> None:
    release = threading.Event()
    for _ in range(3):
        await hang(workers, release)
    release.set()
    inside, most = [0], [0]

    def counts(_: Cancellation) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.002)  # the work
        inside[0] -= 1

    await asyncio.gather(*(workers.submit(counts).result for _ in range(20)))
    assert most == [1]


async def test_a_thread_that_cannot_be_started_is_told_and_is_not_counted(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", fails)
        for _ in range(3):
            with pytest.raises(NotReady, match="no thread"):
                workers.submit(lambda _: 7)
    assert await workers.submit(lambda _: 7).result == 7


async def test_a_job_that_waits_for_a_thread_has_its_time_when_it_has_one(workers: Workers) -> None:
    released = threading.Event()
    hanging = workers.submit(lambda _: released.wait(10))
    waiting = asyncio.ensure_future(workers.run_within(0.02, lambda _: "closed", NotReady("late")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    released.set()
    assert await waiting == "closed"
    assert await hanging.result


async def test_bodies_of_threads_that_hang_are_half_of_the_memory_at_most() -> None:
    hanging, released = HungThreads(bodies=100), threading.Event()
    workers = Workers(1, asyncio.get_running_loop(), 0.0, hanging)
    running = workers.submit(lambda _: released.wait(10), body=Lease(lambda: None, 51))
    await eventually(lambda: running.started)
    assert not hanging.exceeds_limit
    workers.cancel(running, NotReady("nobody waits"))
    with pytest.raises(NotReady):
        await running.result
    await eventually(lambda: hanging.exceeds_limit)
    released.set()
    await eventually(lambda: not hanging.exceeds_limit)
    workers.close()


async def test_threads_have_the_stack_that_was_asked_for_and_those_of_others_their_own(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks, start, usual = [], threading.Thread.start, threading.stack_size()

    def told(thread: threading.Thread) -> None:
        stacks.append(threading.stack_size())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", told)
    workers.resize(1, 1 << 20)
    assert await workers.submit(lambda _: 7).result == 7
    assert (stacks, threading.stack_size()) == ([1 << 20], usual)
