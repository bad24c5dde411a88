"""Calls against an overloaded API server: 429, 503, Retry-After (K2)."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.errors import Unavailable
from clusters.base.objects import Key
from clusters.kubernetes import Timeouts
from clusters.kubernetes.transport import LONGEST_RETRY, SHORTEST_RETRY
from clusters.runtime.controller import Controller
from tests.clusters.kubernetes.api_server import (
    NAMESPACE,
    FakeApiServer,
    refuse,
)  # fmt: skip
from tests.clusters.kubernetes.calls import CALLS, sort_of
from tests.clusters.kubernetes.conftest import Connected
from tests.contract.widgets import WIDGET, widget
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

BUSY = refuse(429, "TooManyRequests", "too many requests", Retry_After="1")
STORM = 60
"""s"""


async def storm(server: FakeApiServer, clock: SteppedClock, seconds: int) -> list[int]:
    """Step through `seconds`; how many requests came in each."""
    counts = []
    for _ in range(seconds):
        before = len(server.asked)
        clock.step(1)
        await eventually(lambda: True)
        await asyncio.sleep(0.01)  # real time for what was woken to reach the server
        counts.append(len(server.asked) - before)
    return counts


@pytest.mark.fault("K2")
@pytest.mark.parametrize("call", CALLS)
async def test_an_overloaded_server_is_asked_again_when_it_said(
    server: FakeApiServer, connected: Connected, call: str
) -> None:
    clock = SteppedClock()
    cluster = await connected(clock=clock)
    server.put("w")
    server.script(sort_of(call), *[refuse(429, "TooManyRequests", Retry_After="7")] * 2)
    task = asyncio.ensure_future(CALLS[call](cluster))
    await eventually(lambda: len(server.asked) == 1 and clock._sleepers)  # the response has arrived
    assert await storm(server, clock, 6) == [0] * 6
    clock.step(1)
    await eventually(lambda: len(server.asked) == 2 and clock._sleepers)
    assert await storm(server, clock, 6) == [0] * 6
    clock.step(1)
    await task


@pytest.mark.fault("K2")
async def test_in_a_storm_of_429_no_object_is_asked_for_more_than_once_a_second(
    server: FakeApiServer, connected: Connected
) -> None:
    clock = SteppedClock()
    cluster = await connected(clock=clock, timeouts=Timeouts(total=STORM * 2))
    server.put("w")
    server.always["other"] = BUSY
    tasks = [asyncio.ensure_future(CALLS["apply"](cluster)) for _ in range(3)]
    await eventually(lambda: len(server.asked) == 3)
    counts = await storm(server, clock, STORM)
    assert max(counts) <= 3
    del server.always["other"]
    clock.step(2)
    await asyncio.gather(*tasks)


async def test_a_storm_that_lasts_is_told_with_the_time_to_come_back(
    server: FakeApiServer, connected: Connected
) -> None:
    clock = SteppedClock()
    cluster = await connected(clock=clock, timeouts=Timeouts(total=10))
    server.always["other"] = BUSY
    task = asyncio.ensure_future(CALLS["apply"](cluster))
    await eventually(lambda: len(server.asked) == 1)
    await storm(server, clock, 10)
    with pytest.raises(Unavailable) as told:
        await task
    assert told.value.retry_after == 1
    assert len(server.asked) <= 10


async def test_who_is_sent_away_for_longer_than_the_deadline_does_not_wait_for_it(
    server: FakeApiServer, connected: Connected
) -> None:
    cluster = await connected(clock=SteppedClock(), timeouts=Timeouts(total=10))
    server.script("other", refuse(503, "ServiceUnavailable", Retry_After="30"))
    with pytest.raises(Unavailable) as told:
        await CALLS["apply"](cluster)
    assert told.value.retry_after == 30


@pytest.mark.fault("K2")
async def test_a_controller_leaves_an_overloaded_server_alone_until_it_may_come_back(
    server: FakeApiServer, connected: Connected
) -> None:
    cluster = await connected(timeouts=Timeouts(total=0.5))
    server.always["other"] = BUSY

    async def reconcile(key: Key) -> None:
        await cluster.apply(WIDGET, widget(NAMESPACE, key.name), manager="t")

    controller = Controller("t", reconcile)
    task = asyncio.create_task(controller.run())
    controller.queue.add(Key(NAMESPACE, "w"))
    await eventually(lambda: len(server.asked) == 3)
    task.cancel()
    moments = [asked.at for asked in server.asked]
    assert moments[1] - moments[0] >= 0.99 and moments[2] - moments[1] >= 0.99


@pytest.mark.parametrize(
    ("header", "seconds"), [("soon", SHORTEST_RETRY), ("0", SHORTEST_RETRY), ("999", LONGEST_RETRY)]
)
async def test_retry_after_is_bounded_and_an_invalid_one_is_the_shortest(
    server: FakeApiServer, connected: Connected, header: str, seconds: float
) -> None:
    cluster = await connected(clock=SteppedClock(), timeouts=Timeouts(total=0.5))
    server.script("other", refuse(503, "ServiceUnavailable", Retry_After=header))
    with pytest.raises(Unavailable) as told:
        await CALLS["apply"](cluster)
    assert told.value.retry_after == seconds


def test_a_watch_that_would_be_dead_before_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="silence"):
        Timeouts(watch=60, silence=60)
