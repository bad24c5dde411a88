"""Requests at zero replicas are held, reported, released, refused and cancelled: a real process on real sockets."""

from __future__ import annotations

import asyncio
import time

import pytest

from clusters.base.objects import Key
from clusters.embedded.activator.wire import ActivatorTarget
from tests.clusters.activator.backend import Backend, Gate
from tests.clusters.activator.caller import REVISION, Caller, Response
from tests.clusters.activator.conftest import Running
from tests.support.wait import eventually


async def all_post(callers: list[Caller]) -> list[asyncio.Task[Response]]:
    return [asyncio.create_task(caller.post(b"%d" % number)) for number, caller in enumerate(callers)]


async def test_a_request_is_passed_on_at_once_when_there_is_room(activator: Running) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        answer = await caller.post(b"body")
        assert (answer.status, answer.body) == (200, b"body")
        assert "server-timing" not in answer.headers
        assert activator.wakes == []


@pytest.mark.parametrize("number", [200, 1000])
@pytest.mark.fault("I1")
async def test_all_requests_held_at_zero_are_answered_after_one_wake(activator: Running, number: int) -> None:
    async with Backend() as backend:
        await activator.serve()
        tasks = await all_post(await activator.callers(number))
        await activator.queued(number)
        assert [load.queued > 0 for _, load in activator.wakes] == [True]
        await activator.serve(backend.endpoint, slots=4)
        answers = await asyncio.gather(*tasks)
        assert {answer.status for answer in answers} == {200}
        assert [answer.body for answer in answers] == [b"%d" % index for index in range(number)]
        assert backend.busiest <= 4
        await activator.idle()
        key, load = activator.wakes[-1]
        assert (key, load.queued) == (REVISION, 0)


async def test_a_wake_is_told_within_a_millisecond_or_so(activator: Running) -> None:
    await activator.serve()
    took = []
    for _ in range(10):
        async with await activator.caller() as caller:
            woken = asyncio.Event()
            activator.link.subscribe(lambda _, woken=woken: woken.set())  # type: ignore[misc]
            began = time.perf_counter()
            caller.send(b"x")
            await woken.wait()
            took.append(time.perf_counter() - began)
        await activator.idle()
    assert min(took) < 0.005  # the best of ten, for the machine is shared


async def test_first_come_is_first_served(activator: Running) -> None:
    async with Backend() as backend:
        await activator.serve()
        tasks = []
        for number in range(20):
            caller = await activator.caller()
            tasks.append(asyncio.create_task(caller.post(b"%d" % number)))
            await activator.queued(number + 1)
        order: list[bytes] = []
        for task in tasks:
            task.add_done_callback(lambda done: order.append(done.result().body))
        await activator.serve(backend.endpoint, slots=1)
        await asyncio.gather(*tasks)
        assert order == [b"%d" % number for number in range(20)]


async def test_the_least_loaded_endpoint_gets_the_next_request(activator: Running) -> None:
    gates = [Gate(), Gate(), Gate()]
    async with Backend(gates[0]) as one, Backend(gates[1]) as two, Backend(gates[2]) as three:
        await activator.serve(one.endpoint, two.endpoint, three.endpoint, slots=5)
        tasks = await all_post(await activator.callers(9))
        await eventually(lambda: (one.busy, two.busy, three.busy) == (3, 3, 3))
        gates[1].open.set()
        await eventually(lambda: two.busy == 0)
        more = await all_post(await activator.callers(3))
        await asyncio.gather(*more)
        assert len(two.calls) == 6
        for gate in gates:
            gate.open.set()
        await asyncio.gather(*tasks)


@pytest.mark.fault("I1")
async def test_a_full_queue_refuses_with_429_and_retry_after(activator: Running) -> None:
    await activator.serve(hold=2)
    callers = await activator.callers(2)
    await all_post(callers)
    await activator.queued(2)
    async with await activator.caller() as third:
        answer = await third.post(b"x")
    assert answer.status == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["content-type"] == "application/json"
    assert "default/iris-00001" in answer.error
    assert activator.load.queued == 2


@pytest.mark.fault("I2")
async def test_requests_of_a_revision_that_cannot_start_are_503_with_retry_after(activator: Running) -> None:
    await activator.serve()
    tasks = await all_post(await activator.callers(20))
    await activator.queued(20)
    await activator.link.set_target(ActivatorTarget(REVISION, (), 2000, 0, 20.0, broken=True))
    for answer in await asyncio.gather(*tasks):
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "cannot start" in answer.body.decode()
    await activator.idle()


@pytest.mark.fault("I1", "I2")
async def test_a_request_waits_no_longer_than_the_deadline(activator: Running) -> None:
    await activator.serve(timeout=0.2)
    async with await activator.caller() as caller:
        began = time.monotonic()
        answer = await caller.post(b"x")
        assert 0.19 <= time.monotonic() - began < 5
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert "0.2 s" in answer.error
    await activator.idle()


@pytest.mark.fault("I5")
async def test_a_caller_that_leaves_while_queued_never_reaches_the_model(activator: Running) -> None:
    async with Backend() as backend:
        await activator.serve()
        stays, *leave = await activator.callers(10)
        stays.send(b"stays")
        for caller in leave:
            caller.send(b"leaves")
        await activator.queued(10)
        for caller in leave:
            caller.leave()
        await activator.queued(1)
        await activator.serve(backend.endpoint)
        assert (await stays.answer()).body == b"stays"
        await activator.idle()
        assert len(backend.calls) == 1


@pytest.mark.fault("I5")
async def test_a_caller_that_leaves_during_the_answer_frees_its_slot(activator: Running) -> None:
    gate = Gate()
    async with Backend(gate) as backend:
        await activator.serve(backend.endpoint, slots=1)
        first, second = await activator.callers(2)
        first.send(b"first")
        await eventually(lambda: backend.busy == 1)
        second.send(b"second")
        await activator.queued(1)
        first.leave()
        await eventually(lambda: len(backend.calls) == 2)
        gate.open.set()
        assert (await second.answer()).body == b"second"
        await activator.idle()


async def test_requests_of_an_unknown_revision_wait_shortly_for_its_target(activator: Running) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        caller.send(b"early")
        await activator.serve(backend.endpoint)
        assert (await caller.answer()).body == b"early"


async def test_a_revision_that_stays_unknown_is_503(activator: Running) -> None:
    async with await activator.caller() as caller:
        answer = await caller.post(b"x", key=Key("default", "nobody-00001"))
        assert answer.status == 503
        assert answer.headers["retry-after"]
        assert "default/nobody-00001" in answer.error


async def test_a_request_past_the_gateway_is_404(activator: Running) -> None:
    async with await activator.caller() as caller:
        answer = await caller.post(b"x", knative_serving_revision=None)
        assert answer.status == 404
        assert "gateway" in answer.error


async def test_whoever_waits_for_a_removed_revision_is_told(activator: Running) -> None:
    await activator.serve()
    async with await activator.caller() as caller:
        caller.send(b"x")
        await activator.queued(1)
        await activator.link.remove_target(REVISION)
        answer = await caller.answer()
        assert answer.status == 503
        assert "removed" in answer.error
    await activator.idle()


@pytest.mark.fault("I7")
async def test_no_new_request_goes_to_an_endpoint_after_it_was_taken_away(activator: Running) -> None:
    """The kubelet's drain relies on this: an acknowledged target is applied, and active requests finish."""
    gate = Gate()
    async with Backend(gate) as old, Backend() as new:
        await activator.serve(old.endpoint)
        callers = await activator.callers(5)
        tasks = await all_post(callers)
        await eventually(lambda: old.busy == 5)
        await activator.serve(new.endpoint)
        answers = await asyncio.gather(*await all_post(await activator.callers(20)))
        assert {answer.status for answer in answers} == {200}
        assert len(old.calls) == 5
        gate.open.set()
        assert {answer.status for answer in await asyncio.gather(*tasks)} == {200}


@pytest.mark.fault("I7")
async def test_endpoints_may_flap_under_load(activator: Running) -> None:
    async with Backend() as one, Backend() as two:
        await activator.serve(one.endpoint, slots=8)
        tasks = await all_post(await activator.callers(300))
        for turn in range(30):
            await activator.serve(
                *((one.endpoint,), (), (two.endpoint,), (one.endpoint, two.endpoint))[turn % 4], slots=8
            )
        await activator.serve(one.endpoint, two.endpoint, slots=8)
        answers = await asyncio.gather(*tasks)
        assert {answer.status for answer in answers} == {200}
        await activator.idle()


async def test_server_timing_of_a_cold_start_sums_to_its_wall_time(activator: Running) -> None:
    async with Backend() as backend:
        await activator.serve()
        first, second = await activator.callers(2)
        began = time.perf_counter()
        waker = asyncio.create_task(first.post(b"first"))
        await activator.queued(1)
        joiner = asyncio.create_task(second.post(b"second"))
        await activator.queued(2)
        await asyncio.wait({waker}, timeout=0.1)  # the model starts
        await activator.serve(backend.endpoint)
        woke, joined = await asyncio.gather(waker, joiner)
        wall = (time.perf_counter() - began) * 1000
        assert list(woke.timing) == ["start", "load", "warmup", "queue", "infer"]
        assert (woke.timing["load"], woke.timing["warmup"]) == (2.0, 3.0)
        assert 100 < sum(woke.timing.values()) <= wall + 1
        assert list(joined.timing) == ["queue", "infer"]
        assert joined.timing["queue"] > 90


async def test_a_start_without_measurements_is_told_as_start(activator: Running) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        backend.stats = b"not json"
        await activator.serve()
        caller.send(b"x")
        await activator.queued(1)
        await activator.serve(backend.endpoint)
        answer = await caller.answer()
        assert answer.timing["load"] == 0
        assert answer.timing["start"] > 0
