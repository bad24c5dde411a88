"""The monitor of activators over real sockets: several that start, stop, hang, respond slowly or endlessly, or fail."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator

import pytest

from autoscaler.config import Activators
from clusters.base.clock import SystemClock
from clusters.base.objects import Key
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.activators import BRISK, REVISION, holding, listening
from tests.autoscaler.pages import (
    Behaviour,
    Server,
    answer,
    chunked,
    drip,
    hang,
    no_http,
    pour,
    pour_headers,
    serving,
    slam,
)
from tests.autoscaler.test_activator_page import OVERFLOW, line, page
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

OTHER = Key("shop", "ocr-00001")
FAULTS: dict[str, Behaviour] = {
    "hangs": hang,
    "drips": drip,
    "pours": pour,
    "pours headers": pour_headers,
    "slams": slam,
    "speaks no http": no_http,
    "fails": answer(b"", "503 Service Unavailable"),
    "redirects": answer(b"", "302 Found"),
    "is garbage": answer(b"<html>busy</html>"),
    "is not a number": answer(page(line("queued", REVISION, "NaN"))),
    "is absurd": answer(page(line("queued", REVISION, "1e308"))),
    "is negative": answer(page(line("queued", REVISION, "-1"))),
}
REJECTED = ("pours", "speaks no http", "is garbage", "is not a number", "is absurd", "is negative")
GROWTH = 10 * 1024  # KiB, as getrusage counts


async def test_what_several_activators_hold_is_added_up_and_a_change_between_none_and_some_is_told(
    cluster: EmbeddedCluster,
) -> None:
    async with serving(holding()) as one, serving(holding()) as two, listening(cluster, [one, two]) as listener:
        await listener.polls(4)
        assert listener.called == []
        one.behave = holding(queued=1)
        await listener.holds(1)
        two.behave = holding(queued=2, active=3)
        await listener.holds(3, 3)
        one.behave = holding()
        await listener.holds(2, 3)
        two.behave = holding(active=3)
        await listener.holds(0, 3)
        assert listener.called == [REVISION, REVISION], "once when the first came, once when the last went"


async def test_a_connection_is_kept_and_a_page_in_pieces_is_read(cluster: EmbeddedCluster) -> None:
    text = page(line("queued", REVISION, "1"))
    async with serving(chunked(text[:70], text[70:])) as one, listening(cluster, [one]) as listener:
        await listener.holds(1)
        await listener.polls(10)
        assert one.connections == 1
        assert one.requests[0].startswith(
            b"GET /metrics?name[]=kn_revision_request_queued&name[]=kn_revision_request_active HTTP/1.1\r\n"
        )


async def test_an_activator_that_comes_is_listened_to_and_what_one_held_that_went_is_forgotten(
    cluster: EmbeddedCluster,
) -> None:
    first, second = serving(holding(queued=1)), serving(holding(queued=5))
    async with first as one, second as two, listening(cluster, [one]) as listener:
        await listener.holds(1)
        await listener.pods.add("activator-9", two)
        await listener.holds(6)
        await listener.pods.remove("activator-0")
        await listener.holds(5)
        await listener.pods.remove("activator-9")
        await listener.holds(0)
        assert listener.called == [REVISION, REVISION]
        asked = len(two.requests)
        await asyncio.sleep(5 * BRISK.poll)
        assert len(two.requests) <= asked + 1


async def test_one_that_ends_is_still_listened_to_but_need_not_answer(cluster: EmbeddedCluster) -> None:
    first, second = serving(holding()), serving(holding(queued=1))
    async with first as one, second as two, listening(cluster, [one, two]) as listener:
        await listener.pods.set_ready("activator-1", False)
        await listener.holds(1)
        assert await listener.poller.refresh()
        two.behave = hang
        assert await listener.poller.refresh()


@pytest.mark.fault("A5")
@pytest.mark.parametrize("fault", FAULTS)
async def test_one_that_misbehaves_is_counted_and_delays_nobody(cluster: EmbeddedCluster, fault: str) -> None:
    async with serving(FAULTS[fault]) as bad, serving(holding()) as good, listening(cluster, [bad, good]) as listener:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts = listener.poller.counts
        await eventually(lambda: counts.rejected + counts.unanswered >= 3)
        assert (counts.rejected > 0) == (fault in REJECTED)
        assert listener.called == []
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH
        began = asyncio.get_running_loop().time()
        good.behave = holding(queued=1)
        await listener.holds(1)
        assert asyncio.get_running_loop().time() - began < BRISK.timeout, "nobody waited for the bad one's deadline"
        assert not await listener.poller.refresh()
        bad.behave = holding(queued=1)
        await listener.holds(2)
        assert await listener.poller.refresh()


async def test_one_that_dies_lets_go_of_what_it_held_at_once_and_one_that_hangs_after_a_while(
    cluster: EmbeddedCluster,
) -> None:
    async with contextlib.AsyncExitStack() as stack, listening(cluster) as listener:
        dying = await stack.enter_async_context(serving(holding(queued=1)))
        await listener.pods.add("dying", dying)
        await listener.holds(1)
        await stack.aclose()
        await listener.holds(0)
        assert listener.called == [REVISION, REVISION]
        async with serving(holding(queued=1)) as hanging:
            await listener.pods.add("hanging", hanging)
            await listener.holds(1)
            hanging.behave = hang
            await listener.polls(3)
            assert listener.poller.load(REVISION).queued == 1, "it may still hold it"
            await listener.holds(0)


@pytest.mark.fault("A2")
async def test_silence_of_a_ready_activator_is_deafness_until_it_answers_again(cluster: EmbeddedCluster) -> None:
    async with serving(holding()) as one, serving(holding()) as two, listening(cluster, [one, two]) as listener:
        await listener.polls(4)
        assert listener.poller.signal_available
        two.behave = hang
        await eventually(lambda: listener.hearing == [False])
        two.behave = holding()
        await eventually(lambda: listener.hearing == [False, True])
        two.behave = hang
        await eventually(lambda: len(listener.hearing) == 3)
        await listener.pods.remove("activator-1")
        await eventually(lambda: listener.hearing == [False, True, False, True])


async def test_without_any_ready_activator_nothing_is_heard_and_a_restart_is_no_silence(
    cluster: EmbeddedCluster,
) -> None:
    async with serving(holding()) as one, listening(cluster, [one]) as listener:
        await listener.polls(2)
        await listener.pods.set_ready("activator-0", False)
        assert not await listener.poller.refresh()
        assert listener.poller.signal_available, "activators may be replaced"
        await eventually(lambda: listener.hearing == [False])
        await listener.pods.set_ready("activator-0", True)
        await eventually(lambda: listener.hearing == [False, True])


async def test_nobody_is_asked_while_there_is_no_revision_and_that_is_no_silence(cluster: EmbeddedCluster) -> None:
    async with serving(holding()) as one, listening(cluster, [one]) as listener:
        await listener.polls(1)
        listener.revisions = []
        await asyncio.sleep(2 * BRISK.idle_poll)
        asked = len(one.requests)
        await asyncio.sleep(1.5 * BRISK.unreachable_after)
        assert len(one.requests) == asked
        assert listener.hearing == []
        listener.revisions = [REVISION]
        await listener.polls(2)
        assert listener.hearing == []


@pytest.fixture
async def calm() -> AsyncIterator[tuple[Server, Activators]]:
    async with serving(holding()) as one:
        yield one, Activators(poll=0.01, idle_poll=30.0, timeout=0.15, unreachable_after=600.0)


async def test_the_pace_is_calm_until_something_comes_to_zero(
    cluster: EmbeddedCluster, calm: tuple[Server, Activators]
) -> None:
    one, settings = calm
    async with listening(cluster, [one], settings) as listener:
        listener.wanted = False
        listener.poller.poll_now()
        await eventually(lambda: len(one.requests) >= 1)
        asked = len(one.requests)
        await asyncio.sleep(0.1)
        assert len(one.requests) <= asked + 1
        listener.wanted = True
        listener.poller.poll_now()
        await listener.polls(10)


async def test_who_asks_for_an_answer_of_now_gets_one_at_any_pace(
    cluster: EmbeddedCluster, calm: tuple[Server, Activators]
) -> None:
    one, settings = calm
    async with listening(cluster, [one], settings) as listener:
        listener.wanted = False
        await eventually(listener.poller.refresh)
        one.behave = holding(active=1)
        assert await listener.poller.refresh()
        assert listener.poller.load(REVISION).active == 1
        listener.revisions = []
        assert await listener.poller.refresh()


async def test_nobody_answers_a_poller_that_does_not_run(cluster: EmbeddedCluster) -> None:
    async with serving(holding()) as one:
        async with listening(cluster, [one]) as listener:
            poller = listener.poller
        assert not await poller.refresh()


async def test_a_fault_in_a_callback_ends_nothing(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(holding()) as one, listening(cluster, [one]) as listener:

        def fail(_: Key) -> None:
            raise RuntimeError("a fault")

        listener.poller.subscribe(fail)
        one.behave = holding(queued=1)
        await listener.holds(1)
        one.behave = holding(queued=2)
        await listener.holds(2)
        assert "internal error" in caplog.text


async def test_a_request_for_a_revision_that_is_not_counted_apart_wakes_all_those_of_ours(
    cluster: EmbeddedCluster,
) -> None:
    counted = page(line("queued", OTHER, "0"), OVERFLOW % 0)
    async with serving(answer(counted)) as one, listening(cluster, [one]) as listener:
        listener.revisions = [REVISION, OTHER]
        await listener.polls(3)
        assert listener.called == []
        one.behave = answer(page(line("queued", OTHER, "0"), OVERFLOW % 1))
        await listener.holds(1)
        assert listener.called == [REVISION]
        one.behave = answer(counted)
        await listener.holds(0)
        assert listener.called == [REVISION, REVISION]


@pytest.mark.fault("A2")
async def test_five_minutes_of_silence_by_a_stepped_clock(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    async with serving(hang) as one:
        settings = Activators(timeout=0.02)
        async with listening(cluster, [one], settings, clock) as listener:
            for elapsed in range(300):
                clock.step(1.0)
                await asyncio.sleep(0.002)
                assert listener.poller.signal_available or elapsed > settings.unreachable_after
            assert listener.hearing == [False]


async def test_a_poll_costs_little_of_a_core(cluster: EmbeddedCluster) -> None:
    async with serving(holding()) as one, listening(cluster, [one], Activators()) as listener:
        await listener.polls(4)
        before, began = listener.poller.counts.polls, SystemClock().monotonic()
        await asyncio.sleep(0.5)
        polls = listener.poller.counts.polls - before
        assert 5 <= polls <= (SystemClock().monotonic() - began) / Activators().poll + 1
