"""Dynamic batching: which requests share an inference, when a batch starts, and isolation between its requests."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, Cancellation, Signature, TensorSpec
from serving.engines.base.errors import Cancelled, InputRefused
from serving.modelserver.base.assignment import BatchBounds
from serving.modelserver.base.errors import ClientLeft, DeadlineExceeded, InvalidRequest, ModelFailed, QueueExpired
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.execution import batcher as batchers
from serving.modelserver.execution.batch import rows_of
from serving.modelserver.execution.batcher import Batcher
from serving.modelserver.execution.inference import RequestContext
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.workers import Workers
from tests.support.wait import eventually

NEVER = 1000.0  # s
SIZE = 8  # rows
MANY = 1000  # inferences; no test has more


class Sums:
    """FP64 x [n, 2] → y [n], the sum of each row. Each inference waits for a pass; one with a NaN is refused."""

    bounded = True
    is_async = False

    def __init__(self, width: int | None = ANY) -> None:
        shape = None if width is None else (width,)
        self.signature = Signature("test", (TensorSpec("x", "FP64", (ANY, 2)),), (TensorSpec("y", "FP64", shape),))
        self.passes = threading.Semaphore(MANY)
        self.sizes: list[int] = []
        self.cancellations: list[Cancellation] = []
        self.divided = True

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Return the sums of all rows."""
        rows = inputs["x"]
        assert cancellation is not None
        self.cancellations.append(cancellation)
        self.sizes.append(len(rows))
        while not self.passes.acquire(timeout=0.005):
            if cancellation.cancelled:
                raise Cancelled("as asked")
        if np.isnan(rows).any():
            raise InputRefused("no number")
        return [rows.sum(axis=1) if self.divided or len(rows) == 1 else rows.sum(axis=1)[:1]]

    def close(self) -> None:
        """Do nothing: there are no resources."""


class Exits(Sums):
    """An engine that ends its thread."""

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Raise SystemExit."""
        raise SystemExit


class StubClient:
    """A client that disconnects on command."""

    def __init__(self) -> None:
        self.leave: Callable[[], object] | None = None

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Keep the callback."""
        self.leave = callback


class Parts:
    """A batcher of one model."""

    def __init__(self, latency: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.workers = Workers(4, self.loop)
        self.told: list[int] = []
        self.batcher = Batcher(BatchBounds(SIZE, latency), self.workers, self.loop, self.told.append)
        self.serve(Sums())

    def serve(self, engine: Sums) -> None:
        """Use this engine from now on."""
        self.engine = engine
        codec: Any = None
        self.model = ServedModel("m", "m-00001", engine, codec, 1.0)

    def ask(
        self, *values: float, timeout: float = NEVER, client: StubClient | None = None, **more: Any
    ) -> asyncio.Future[Sequence[Tensor]]:
        """Start a request with one row per value."""
        inputs = {"x": np.array([[value, 1.0] for value in values])}
        call = PreparedRequest(inputs, ["y"], [False], "", **more)
        context = RequestContext(self.loop.time() + timeout, timeout, client or StubClient())
        return asyncio.ensure_future(self.batcher.infer(self.model, call, rows_of(call), context))

    async def occupied(self) -> asyncio.Future[Sequence[Tensor]]:
        """Start a request that stays in the engine until it has a pass."""
        self.engine.passes = threading.Semaphore(0)
        first = self.ask(0.0)
        await eventually(lambda: self.engine.sizes == [1])
        return first


Make = Callable[[float], Parts]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Return a factory of parts with a `max_latency`."""
    made: list[Parts] = []

    def one(latency: float) -> Parts:
        made.append(Parts(latency))
        return made[-1]

    yield one
    for parts in made:
        parts.engine.passes.release(MANY)
        parts.workers.close()


@pytest.fixture
async def parts(make: Make) -> Parts:
    """Return parts whose idle engine never waits."""
    return make(0.0)


async def sums(asked: Awaitable[Sequence[Tensor]]) -> list[float]:
    async with asyncio.timeout(10):
        return [float(value) for value in (await asked)[0]]


async def begun() -> None:
    """Let new tasks run up to their first wait."""
    await asyncio.sleep(0)


async def test_what_comes_while_the_engine_works_is_its_next_batch(parts: Parts) -> None:
    first = await parts.occupied()
    others = [parts.ask(float(value)) for value in range(1, 6)]
    await begun()
    parts.engine.passes.release(MANY)
    assert await sums(first) == [1.0]
    assert [await sums(other) for other in others] == [[value + 1.0] for value in range(1, 6)]
    assert parts.engine.sizes == parts.told == [1, 5]


async def test_a_batch_has_at_most_so_many_rows_and_whatever_comes_first_is_in_it(parts: Parts) -> None:
    first = await parts.occupied()
    others = [parts.ask(*values) for values in ([1.0] * 5, [2.0] * 4, [3.0] * 3, [4.0] * 9, [5.0])]
    await begun()
    parts.engine.passes.release(MANY)
    for asked, count, value in zip(others, (5, 4, 3, 9, 1), (2.0, 3.0, 4.0, 5.0, 6.0), strict=True):
        assert await sums(asked) == [value] * count
    await first
    assert parts.engine.sizes == [1, 8, 5, 9]


@pytest.mark.fault("M12")
async def test_1000_requests_at_once_get_their_own_answers(make: Make) -> None:
    parts, chance = make(0.001), random.Random(1000)
    values = [float("nan") if chance.random() < 0.01 else float(number) for number in range(1000)]
    asked = [parts.ask(*[value] * chance.randint(1, 3), parameters={"seed": chance.randint(0, 1)}) for value in values]
    await begun()
    for leaves in chance.sample(asked, 50):
        leaves.cancel()
    await asyncio.wait(asked, timeout=10)
    for value, one in zip(values, asked, strict=True):
        if one.cancelled():
            continue
        if math.isnan(value):
            assert isinstance(one.exception(), InvalidRequest)
        else:
            assert set(await sums(one)) == {value + 1.0}
    assert max(parts.engine.sizes) == SIZE


async def test_what_is_not_alike_shares_no_inference(parts: Parts) -> None:
    first = await parts.occupied()
    others = [parts.ask(float(value), parameters={"seed": value % 2}) for value in range(4)]
    await begun()
    parts.engine.passes.release(MANY)
    assert [await sums(other) for other in others] == [[value + 1.0] for value in range(4)]
    await first
    assert parts.engine.sizes == [1, 2, 2]


@pytest.mark.fault("M12")
async def test_a_poisoned_request_is_the_only_one_that_fails(parts: Parts) -> None:
    first = await parts.occupied()
    others = [parts.ask(value) for value in (1.0, float("nan"), 3.0)]
    await begun()
    parts.engine.passes.release(MANY)
    await first
    assert (await sums(others[0]), await sums(others[2])) == ([2.0], [4.0])
    with pytest.raises(InvalidRequest):
        await others[1]
    assert parts.engine.sizes == [1, 3, 1, 1, 1]


async def test_a_model_whose_answer_has_not_a_row_for_each_row_is_batched_no_more(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    assert parts.batcher.can_batch(parts.model)
    parts.engine.divided = False
    first = await parts.occupied()
    others = [parts.ask(float(value)) for value in range(3)]
    await begun()
    parts.engine.passes.release(MANY)
    assert [await sums(other) for other in others] == [[1.0], [2.0], [3.0]]
    await first
    assert parts.engine.sizes == [1, 3, 1, 1, 1]
    assert not parts.batcher.can_batch(parts.model)
    assert "no longer batched" in caplog.text


async def test_a_model_without_a_dimension_for_rows_is_not_batched(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    for width in (1, None):
        parts.serve(Sums(width))
        assert not parts.batcher.can_batch(parts.model)
    assert "the first dimension of 'y' is not variable" in caplog.text
    parts.serve(Sums())
    assert parts.batcher.can_batch(parts.model)


async def test_one_that_leaves_takes_only_its_own_place_with_it(parts: Parts) -> None:
    first = await parts.occupied()
    leaves, stays = StubClient(), StubClient()
    waiting = [parts.ask(1.0, client=leaves), parts.ask(2.0, client=stays), parts.ask(3.0)]
    await begun()
    assert leaves.leave is not None
    leaves.leave()
    waiting[2].cancel()
    with pytest.raises(ClientLeft):
        await waiting[0]
    parts.engine.passes.release(MANY)
    assert await sums(waiting[1]) == [3.0]
    await first
    assert parts.engine.sizes == [1, 1]


async def test_a_batch_ends_when_nobody_is_left_and_not_before(parts: Parts) -> None:
    first = await parts.occupied()
    others = [parts.ask(1.0), parts.ask(2.0)]
    await begun()
    parts.engine.passes.release()
    await first
    await eventually(lambda: parts.engine.sizes == [1, 2])
    for other, ended in zip(others, (False, True), strict=True):
        other.cancel()
        await asyncio.wait([other])
        assert parts.engine.cancellations[1].cancelled is ended
    parts.engine.passes.release(MANY)
    assert await sums(parts.ask(7.0)) == [8.0]


async def test_each_request_has_its_own_deadline_in_the_queue_and_in_the_engine(parts: Parts) -> None:
    first = await parts.occupied()
    with pytest.raises(QueueExpired):
        await parts.ask(1.0, timeout=0.01)
    late, patient = parts.ask(2.0, timeout=0.25), parts.ask(3.0)
    await begun()
    parts.engine.passes.release()
    await first
    await eventually(lambda: parts.engine.sizes == [1, 2])
    with pytest.raises(DeadlineExceeded):
        await late
    parts.engine.passes.release()
    assert await sums(patient) == [4.0]


async def test_a_lone_caller_never_waits_for_others(make: Make) -> None:
    parts = make(NEVER)
    for value in (1.0, 2.0, 3.0):
        assert await sums(parts.ask(value)) == [value + 1.0]
    assert parts.engine.sizes == [1, 1, 1]


async def test_callers_that_were_just_answered_are_waited_for(make: Make) -> None:
    parts = make(NEVER)
    first = await parts.occupied()
    second = parts.ask(2.0)
    await begun()
    parts.engine.passes.release(MANY)
    await first
    await begun()
    assert parts.engine.sizes == [1] and not second.done()
    again = parts.ask(3.0)
    assert (await sums(second), await sums(again)) == ([3.0], [4.0])
    assert parts.engine.sizes == [1, 2]


async def test_hope_for_more_callers_ends_with_a_full_batch_and_with_the_latency(make: Make) -> None:
    parts = make(NEVER)
    first = await parts.occupied()
    second = parts.ask(2.0)
    await begun()
    parts.engine.passes.release(MANY)
    await first
    full = parts.ask(*[1.0] * SIZE)
    assert await sums(second) == [3.0]
    assert await sums(full) == [2.0] * SIZE
    short = make(0.01)
    first = await short.occupied()
    second = short.ask(2.0)
    await begun()
    short.engine.passes.release(MANY)
    assert await sums(second) == [3.0]
    await first


async def test_a_batch_that_takes_long_does_not_hold_up_the_next(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batchers, "MAX_BATCH_WAIT", 0.01)
    first = await parts.occupied()
    second = parts.ask(2.0)
    await eventually(lambda: parts.engine.sizes == [1, 1])
    assert not first.done()
    parts.engine.passes.release(MANY)
    assert (await sums(first), await sums(second)) == ([1.0], [3.0])


async def test_an_engine_that_gives_up_its_thread_is_told_to_the_caller(parts: Parts) -> None:
    parts.serve(Exits())
    with pytest.raises(ModelFailed, match="the model ended"):
        await parts.ask(1.0)
