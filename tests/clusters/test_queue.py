"""The work queue: a key is queued once, and one worker has it."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from clusters.runtime.queue import WorkQueue


async def test_keys_come_in_order_and_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_at_work_comes_again_after_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "b"
    queue.done("a")
    assert await queue.get() == "a"


async def test_of_several_timers_the_earliest_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 60)
    queue.add_after("a", 0.001)
    queue.add_after("a", 30)
    async with asyncio.timeout(5):
        assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_no_delay_is_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 0)
    assert len(queue) == 1


async def test_the_back_off_doubles_is_capped_and_forgotten() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=1.0, largest_delay=10.0)
    delays = [queue.retry("a") for _ in range(6)]
    for delay, nominal in zip(delays, (1, 2, 4, 8, 10, 10), strict=True):
        assert 0.9 * nominal <= delay <= 1.1 * nominal
    assert queue.failures("a") == 6
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.retry("a") <= 1.1


async def test_ten_thousand_failures_do_not_overflow() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=1.0, largest_delay=10.0)
    assert max(queue.retry("a") for _ in range(10_000)) <= 11.0


@given(st.lists(st.sampled_from(["add a", "add b", "get", "done a", "done b"]), max_size=60))
def test_no_key_is_lost_nor_twice_at_work(steps: list[str]) -> None:
    async def run() -> None:
        queue: WorkQueue[str] = WorkQueue()
        wanted: set[str] = set()
        working: set[str] = set()
        for step in steps:
            verb, _, key = step.partition(" ")
            if verb == "add":
                queue.add(key)
                wanted.add(key)
            elif verb == "get" and wanted - working:
                key = await asyncio.wait_for(queue.get(), 1)
                assert key in wanted and key not in working
                wanted.discard(key)
                working.add(key)
            elif verb == "done" and key in working:
                queue.done(key)
                working.discard(key)
        assert len(queue) == len(wanted)

    asyncio.run(run())
