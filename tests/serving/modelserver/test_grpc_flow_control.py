"""Slow gRPC messages: bounds of their memory and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from serving.modelserver.base.errors import ClientLeft, Overloaded, RequestTimeout
from serving.modelserver.base.limits import SMALL_BODY, BodyBudget, ServerLimits
from serving.modelserver.grpc.flow_control import MessageReceiver
from serving.modelserver.grpc.library import grpc

LARGEST = 2 * SMALL_BODY
NEVER = 100.0  # s


class Call:
    """A call whose message arrives on command."""

    def __init__(self) -> None:
        self.message: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def read(self) -> Any:
        return await self.message

    def time_remaining(self) -> float | None:
        return None

    def set_compression(self, compression: Any) -> None:
        """Do nothing: unused."""

    async def send_initial_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Do nothing: unused."""

    def set_trailing_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Do nothing: unused."""

    async def abort(self, code: Any, details: str, trailing_metadata: tuple[tuple[str, str], ...]) -> None:
        """Do nothing: unused."""

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Do nothing: unused."""


def messages(budget: BodyBudget, prompt: float = 0.0, longest: float = NEVER) -> MessageReceiver:
    """Return a receiver."""
    return MessageReceiver(
        budget, ServerLimits(body=LARGEST, body_memory=2 * LARGEST), asyncio.get_running_loop(), prompt, longest
    )


async def begun(receiver: MessageReceiver) -> tuple[Call, asyncio.Task[bytes]]:
    """Start to receive a call."""
    call = Call()
    task = asyncio.ensure_future(receiver.receive(call))
    for _ in range(3):  # timers that are due have run
        await asyncio.sleep(0)
    return call, task


async def test_a_large_message_borrows_its_length_until_it_is_done() -> None:
    budget = BodyBudget(LARGEST)
    receiver = messages(budget, prompt=NEVER)
    call, task = await begun(receiver)
    assert budget.lent == 0
    call.message.set_result(b"\0" * (SMALL_BODY + 1))
    message = await task
    assert budget.lent == SMALL_BODY + 1
    receiver.lease(message).release()
    assert budget.lent == 0


async def test_a_small_message_borrows_nothing() -> None:
    budget = BodyBudget(0)
    receiver = messages(budget, prompt=NEVER)
    call, task = await begun(receiver)
    call.message.set_result(b"12345")
    receiver.lease(await task).release()
    assert budget.lent == 0


async def test_a_slow_message_borrows_until_it_is_here() -> None:
    budget = BodyBudget(LARGEST)
    call, task = await begun(messages(budget))
    assert budget.lent == LARGEST
    call.message.set_result(b"12345")
    assert await task == b"12345"
    assert budget.lent == 0


@pytest.mark.parametrize("room", [LARGEST, 10 * LARGEST])
async def test_a_slow_message_too_many_is_refused(room: int) -> None:
    """With a budget that is used up, and with one whose rest is not for slow messages."""
    budget = BodyBudget(room)
    receiver = messages(budget)
    first, task = await begun(receiver)
    _, second = await begun(receiver)
    with pytest.raises(Overloaded):
        await second
    assert budget.lent == LARGEST
    first.message.set_result(b"")
    assert (await task, budget.lent) == (b"", 0)


async def test_a_message_that_does_not_end_is_cut_off() -> None:
    budget = BodyBudget(LARGEST)
    _, task = await begun(messages(budget, longest=0.01))
    with pytest.raises(RequestTimeout):
        await task
    assert budget.lent == 0


async def test_a_caller_that_leaves_is_no_slow_one() -> None:
    budget = BodyBudget(LARGEST)
    call, task = await begun(messages(budget))
    call.message.set_result(grpc.aio.EOF)
    with pytest.raises(ClientLeft):
        await task
    _, cancelled = await begun(messages(budget))
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert budget.lent == 0
