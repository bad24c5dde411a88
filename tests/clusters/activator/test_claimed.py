"""Claimed members of warm pools: no request is sent to one before it has its model."""

from __future__ import annotations

import asyncio
import json

from clusters.embedded.activator.wire import RevisionLoad
from tests.clusters.activator.backend import Backend, Call
from tests.clusters.activator.conftest import Running
from tests.support.wait import eventually

LOAD, WARMUP = 40.0, 10.0  # ms


class Member:
    """A model server that was just claimed: it holds `GET /v2` until `loaded` or `failed`."""

    def __init__(self) -> None:
        self.backend = Backend(self)
        self.ended = asyncio.Event()
        self.status = "200 OK"
        self._tell({"imports": 900.0, "claimed": True, "readyFor": None})

    async def __call__(self, call: Call) -> None:
        if b"GET /v2 " not in call.head:
            await Backend.echo(call)
            return
        await self.ended.wait()
        await call.answer(status=self.status)

    @property
    def asked(self) -> int:
        """How often it was asked whether it has its model."""
        return sum(b"GET /v2 " in call.head for call in self.backend.calls)

    @property
    def passed_on(self) -> int:
        """Requests of callers that it got."""
        return len(self.backend.calls) - self.asked

    def loaded(self) -> None:
        """The model is there."""
        self._tell({"imports": 900.0, "load": LOAD, "warmup": WARMUP, "claimed": True, "readyFor": 0.0})
        self.ended.set()

    def failed(self) -> None:
        """The model cannot be loaded."""
        self.status = "503 Service Unavailable"
        self.ended.set()

    def _tell(self, startup: dict[str, object]) -> None:
        self.backend.stats = json.dumps({"startup": startup}).encode()


async def test_requests_wait_until_the_claimed_member_has_its_model(activator: Running) -> None:
    member = Member()
    async with member.backend:
        await activator.serve()
        callers = await activator.callers(20)
        tasks = [asyncio.create_task(caller.post(b"%d" % number)) for number, caller in enumerate(callers)]
        await activator.queued(20)
        await activator.serve(member.backend.endpoint, slots=2)
        await eventually(lambda: member.asked == 1)
        assert activator.load == RevisionLoad(queued=20, active=0)

        member.loaded()

        answers = await asyncio.gather(*tasks)
        assert [answer.body for answer in answers] == [b"%d" % number for number in range(20)]
        assert (member.asked, member.passed_on) == (1, 20)
        assert list(answers[0].timing) == ["claim", "load", "warmup", "queue", "infer"]
        assert {tuple(answer.timing) for answer in answers[1:]} == {("queue", "infer")}
        await activator.idle()


async def test_a_request_that_comes_while_it_loads_reports_its_wait(activator: Running) -> None:
    member = Member()
    async with member.backend, await activator.caller() as caller:
        await activator.serve(member.backend.endpoint)
        caller.send(b"x")
        await activator.queued(1)
        await eventually(lambda: member.asked == 1)
        member.loaded()
        assert list((await caller.answer()).timing) == ["queue", "infer"]


async def test_no_caller_sees_that_a_member_is_killed_while_it_loads(activator: Running) -> None:
    member = Member()
    async with member.backend, Backend() as other:
        await activator.serve()
        tasks = [asyncio.create_task(caller.post(b"x")) for caller in await activator.callers(5)]
        await activator.queued(5)
        await activator.serve(member.backend.endpoint)
        await eventually(lambda: member.asked == 1)

        await member.backend.close()
        await activator.queued(5)
        await activator.serve(other.endpoint)

        assert {answer.status for answer in await asyncio.gather(*tasks)} == {200}
        assert (member.passed_on, len(other.calls)) == (0, 5)
        await activator.idle()


async def test_a_load_that_fails_puts_its_requests_back_in_front(activator: Running) -> None:
    member = Member()
    async with member.backend, Backend() as other:
        await activator.serve()
        task = asyncio.create_task((await activator.caller()).post(b"x"))
        await activator.queued(1)
        await activator.serve(member.backend.endpoint)
        await eventually(lambda: member.asked == 1)

        member.failed()
        await activator.serve(member.backend.endpoint, other.endpoint)

        assert (await task).body == b"x"
        assert member.passed_on == 0


async def test_a_request_waits_no_longer_than_its_deadline_for_a_load(activator: Running) -> None:
    member = Member()
    async with member.backend, await activator.caller() as caller:
        await activator.serve(member.backend.endpoint, timeout=0.2)
        answer = await caller.post(b"x")
        assert answer.status == 503
        assert "in time" in answer.error
        member.loaded()
        assert (await caller.post(b"y")).body == b"y"
    await activator.idle()


async def test_a_caller_that_leaves_while_the_model_loads_is_forgotten(activator: Running) -> None:
    member = Member()
    async with member.backend:
        await activator.serve(member.backend.endpoint, slots=1)
        leaves, stays = await activator.callers(2)
        leaves.send(b"leaves")
        await eventually(lambda: member.asked == 1)
        stays.send(b"stays")
        await activator.queued(2)
        leaves.leave()
        await activator.queued(1)
        member.loaded()
        assert (await stays.answer()).body == b"stays"
        assert member.passed_on == 1
