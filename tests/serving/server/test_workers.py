"""Threads for inferences, those that hang among them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from serving.engines.base import Cancellation
from serving.server.errors import DeadlineExceeded, NotReady
from serving.server.workers import MOST_STUCK, Workers
from tests.support.wait import eventually


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    made = Workers(1, asyncio.get_running_loop())
    yield made
    made.close()


async def hang(workers: Workers, release: threading.Event) -> None:
    """Begin an inference that ends with `release`, and give it up."""
    running = workers.submit(lambda _: release.wait(10))
    await eventually(lambda: running.begun)
    workers.give_up(running, DeadlineExceeded("late"))
    with pytest.raises(DeadlineExceeded):
        await running.answer


async def test_results_and_exceptions_come_back(workers: Workers) -> None:
    assert await workers.submit(lambda _: 7).answer == 7

    def fails(_: Cancellation) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await workers.submit(fails).answer


async def test_an_inference_that_hangs_takes_no_thread_from_others(workers: Workers) -> None:
    release = threading.Event()
    await hang(workers, release)
    assert await workers.submit(lambda _: 7).answer == 7
    release.set()


async def test_an_inference_is_asked_to_end_when_nobody_waits(workers: Workers) -> None:
    begun, asked = threading.Event(), threading.Event()

    def obeys(cancellation: Cancellation) -> bool:
        cancellation.on_cancel(asked.set)
        begun.set()
        return asked.wait(10)

    running = workers.submit(obeys)
    await eventually(begun.is_set)
    workers.give_up(running, DeadlineExceeded("late"))
    await eventually(asked.is_set)
    with pytest.raises(DeadlineExceeded):
        await running.answer


async def test_what_nobody_waits_for_is_not_begun(workers: Workers) -> None:
    release, begun = threading.Event(), threading.Event()
    first = workers.submit(lambda _: release.wait(10))
    second = workers.submit(lambda _: begun.set())
    workers.give_up(second, DeadlineExceeded("late"))
    release.set()
    assert await first.answer
    assert await workers.submit(lambda _: 7).answer == 7
    assert not begun.is_set()
    assert isinstance(second.answer.exception(), DeadlineExceeded)


async def test_when_too_many_hang_no_more_are_begun_until_they_end(workers: Workers) -> None:
    release = threading.Event()
    for _ in range(MOST_STUCK):
        await hang(workers, release)
    assert workers.exhausted
    with pytest.raises(NotReady):
        workers.submit(lambda _: 7)
    release.set()
    await eventually(lambda: not workers.exhausted)
    assert await workers.submit(lambda _: 7).answer == 7
