"""Inferences of any protocol: slots, deadlines, and cancellation when the client disconnects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InputRefused
from serving.modelserver.base.errors import (
    ClientLeft,
    DeadlineExceeded,
    DeviceLost,
    InvalidRequest,
    ModelFailed,
    NotReady,
    QueueExpired,
)
from serving.modelserver.base.stats import Stats
from serving.modelserver.execution.inference import INLINE_BODY, Inference
from serving.modelserver.execution.lifecycle import ModelLifecycle, ServedModel
from serving.modelserver.execution.slot_queue import SlotQueue
from serving.modelserver.execution.workers import Workers
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

LARGE = INLINE_BODY + 1  # bytes: of a request that has a thread


class Engine:
    """The part of an engine that an inference uses."""

    bounded = True


class Nobody:
    """A client that never disconnects."""

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Do nothing: it never disconnects."""


class Parts:
    """An inference with one slot."""

    def __init__(self, pace: float | None = 0.0, grace: float = 1000.0) -> None:
        loop = asyncio.get_running_loop()
        self.stats = Stats(SteppedClock().monotonic)
        self.workers = Workers(1, loop, grace)
        self.lifecycle = ModelLifecycle(self.workers)
        slots = SlotQueue(1, 10, self.stats)
        self.inference = Inference(self.lifecycle, slots, self.workers, 10.0, loop)
        engine: Any = Engine()
        codec: Any = None
        self.model = ServedModel("m", "m-00001", engine, codec, pace)
        self.lifecycle.set_model(self.model)

    async def run(self, job: Any, size: int = LARGE, timeout: float | None = None, began: float | None = None) -> Any:
        """Run an inference."""
        return await self.inference.run(job, size, Nobody(), timeout, began)

    def load(self) -> tuple[int, int]:
        """Return the numbers of active and queued inferences."""
        return self.stats.active, self.stats.queued


@pytest.fixture
async def parts() -> Any:
    made = Parts()
    yield made
    made.workers.close()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Return an event that ends the inferences that wait for it."""
    made = threading.Event()
    yield made
    made.set()


async def test_the_job_gets_the_model_and_its_result_comes_back(parts: Parts) -> None:
    assert await parts.run(lambda model, _: model) is parts.model


async def test_a_small_request_of_a_fast_model_has_no_thread_and_a_large_one_has(parts: Parts) -> None:
    here = threading.get_ident()
    assert await parts.run(lambda *_: threading.get_ident(), size=INLINE_BODY) == here
    assert await parts.run(lambda *_: threading.get_ident(), size=LARGE) != here


async def test_without_a_model_nothing_is_begun(parts: Parts) -> None:
    loop = asyncio.get_running_loop()
    empty = Inference(ModelLifecycle(parts.workers), SlotQueue(1, 1, parts.stats), parts.workers, 1.0, loop)
    with pytest.raises(NotReady):
        await empty.run(lambda *_: None, LARGE, Nobody())


async def test_a_callers_deadline_counts_when_it_is_shorter(parts: Parts, release: threading.Event) -> None:
    begun = threading.Event()

    def waits(_: ServedModel, __: Cancellation | None) -> None:
        begun.set()
        release.wait(10)

    slow = asyncio.ensure_future(parts.run(waits, timeout=0.05))
    await eventually(begun.is_set)
    with pytest.raises(QueueExpired):
        await parts.run(lambda *_: None, timeout=0.0)
    with pytest.raises(DeadlineExceeded):
        await slow
    assert parts.load() == (1, 0)
    release.set()
    await eventually(lambda: parts.load() == (0, 0))


@pytest.mark.fault("M4")
async def test_a_slot_is_kept_by_who_works_in_it_and_not_by_who_hangs(release: threading.Event) -> None:
    parts = Parts(grace=0.05)
    begun = threading.Event()

    def hangs(*_: Any) -> None:
        begun.set()
        release.wait(10)

    leaves = asyncio.ensure_future(parts.run(hangs))
    await eventually(begun.is_set)
    waiting = asyncio.ensure_future(parts.run(lambda *_: 7))
    await eventually(lambda: parts.load() == (1, 1))
    leaves.cancel()
    await asyncio.wait([leaves])
    assert parts.load() == (1, 1)
    assert await waiting == 7
    assert parts.load() == (0, 0)
    release.set()
    parts.workers.close()


@pytest.mark.fault("M4")
async def test_a_server_whose_threads_all_hang_is_not_live(release: threading.Event) -> None:
    parts = Parts(grace=0.0)

    async def hangs() -> bool:
        """Start an inference that hangs; return whether the server is no longer live."""
        with pytest.raises((DeadlineExceeded, NotReady)):
            await parts.run(lambda *_: release.wait(10), timeout=0.01)
        return not parts.lifecycle.live

    await eventually(lambda: parts.lifecycle.live)
    await eventually(hangs)
    release.set()
    await eventually(lambda: parts.lifecycle.live)
    parts.workers.close()


@pytest.mark.fault("M11")
@pytest.mark.parametrize("size", [INLINE_BODY, LARGE], ids=["on the loop", "in a thread"])
async def test_out_of_memory_costs_one_request_and_a_lost_device_the_server(parts: Parts, size: int) -> None:
    def fails(words: str) -> Callable[..., None]:
        def job(*_: object) -> None:
            raise RuntimeError(words)

        return job

    with pytest.raises(ModelFailed):
        await parts.run(fails("CUDA out of memory. Tried to allocate 2.00 GiB"), size)
    assert await parts.run(lambda *_: 7, size) == 7
    assert (parts.lifecycle.ready, parts.lifecycle.live) == (True, True)
    with pytest.raises(DeviceLost, match="until it is restarted") as raised:
        await parts.run(fails("CUDA error: device-side assert triggered"), size)
    assert raised.value.retry_after and "assert" not in str(raised.value)
    assert (parts.lifecycle.ready, parts.lifecycle.live) == (False, False)
    assert parts.lifecycle.reason.startswith("the accelerator")
    assert parts.load() == (0, 0)


async def test_the_time_of_a_request_begins_when_it_begins_to_wait_for_its_model(
    parts: Parts, release: threading.Event
) -> None:
    waited = asyncio.get_running_loop().time() - 9.98  # of its 10 s
    with pytest.raises(DeadlineExceeded, match="within 10 s"):
        await parts.run(lambda *_: release.wait(10), began=waited)


async def test_a_task_that_is_cancelled_frees_slot_and_place_and_asks_the_model_to_end(parts: Parts) -> None:
    begun, asked = threading.Event(), threading.Event()

    def obeys(_: ServedModel, cancellation: Cancellation) -> None:
        cancellation.on_cancel(asked.set)
        begun.set()
        asked.wait(10)

    inside = asyncio.ensure_future(parts.run(obeys))
    await eventually(begun.is_set)
    waiting = asyncio.ensure_future(parts.run(obeys))
    await eventually(lambda: parts.stats.queued == 1)
    for task in (waiting, inside):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert asked.is_set()
    await eventually(lambda: parts.load() == (0, 0))
    assert await parts.run(lambda *_: 7) == 7


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (InputRefused("secret"), InvalidRequest),
        (ValueError("secret"), ModelFailed),
        (InvalidRequest("said"), InvalidRequest),
    ],
)
@pytest.mark.parametrize("size", [1, LARGE])
async def test_what_the_job_raises_is_told_in_our_words(
    parts: Parts, raised: Exception, told: type[Exception], size: int
) -> None:
    def fails(*_: Any) -> None:
        raise raised

    with pytest.raises(told) as error:
        await parts.run(fails, size)
    assert "secret" not in str(error.value)
    assert parts.stats.active == 0


async def test_an_engine_that_was_asked_to_end_did_not_fail(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    def ended(*_: Any) -> None:
        raise Cancelled("as asked")

    with pytest.raises(ClientLeft):
        await parts.run(ended)
    assert not caplog.records


async def test_a_model_that_was_not_warmed_up_proves_its_pace() -> None:
    parts = Parts(pace=None)
    idents = [await parts.run(lambda *_: threading.get_ident(), size=1) for _ in range(2)]
    assert idents[0] != threading.get_ident() == idents[1]
    parts.workers.close()
