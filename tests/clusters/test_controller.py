"""The controller: which changes enqueue which keys, and how failed passes are retried."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from clusters.base.errors import Conflict, TemporaryError, Unavailable
from clusters.base.objects import MODEL, SECRET, WARM_POOL, Key, name_of, owner_reference
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from tests.support.loops import at_work
from tests.support.wait import eventually

A = Key("ns", "a")
B = Key("ns", "b")


@contextlib.asynccontextmanager
async def running(*runnables: Controller | Informers) -> AsyncIterator[None]:
    """Run all until the block ends."""
    async with at_work(*(runnable.run() for runnable in runnables)):
        yield


class Passes:
    """A reconciler that follows a script for its first passes, then succeeds."""

    def __init__(self, *script: Exception | float | None) -> None:
        self._script = list(script)
        self.keys: list[Key] = []

    async def __call__(self, key: Key) -> float | None:
        """One pass."""
        self.keys.append(key)
        step = self._script.pop(0) if self._script else None
        if isinstance(step, Exception):
            raise step
        return step


async def test_a_change_wakes_its_own_key(cluster: EmbeddedCluster) -> None:
    informers, passes = Informers(cluster), Passes()
    controller = Controller("tests", passes)
    controller.watches(informers[MODEL])
    async with running(controller, informers):
        await cluster.create(MODEL, {"metadata": {"name": "a", "namespace": "ns"}}, manager="t")
        await eventually(lambda: passes.keys == [A])
        await cluster.delete(MODEL, "a", "ns")
        await eventually(lambda: passes.keys == [A, A])


async def test_a_child_wakes_its_owner_of_the_right_kind(cluster: EmbeddedCluster) -> None:
    informers, passes = Informers(cluster), Passes()
    controller = Controller("tests", passes)
    controller.watches_owned(informers[SECRET], MODEL)
    owner = await cluster.create(MODEL, {"metadata": {"name": "a", "namespace": "ns"}}, manager="t")
    other = await cluster.create(WARM_POOL, {"metadata": {"name": "b", "namespace": "ns"}}, manager="t")
    async with running(controller, informers):
        for kind, parent in ((WARM_POOL, other), (MODEL, owner)):
            references = [owner_reference(kind, parent)]
            metadata = {"name": f"of-{name_of(parent)}", "namespace": "ns", "ownerReferences": references}
            await cluster.create(SECRET, {"metadata": metadata}, manager="t")
        await eventually(lambda: A in passes.keys)
    assert set(passes.keys) == {A}


async def test_a_change_wakes_mapped_keys(cluster: EmbeddedCluster) -> None:
    informers, passes = Informers(cluster), Passes()
    controller = Controller("tests", passes)
    controller.watches_mapped(informers[SECRET], lambda obj: [B])
    async with running(controller, informers):
        await cluster.create(SECRET, {"metadata": {"name": "s", "namespace": "ns"}}, manager="t")
        await eventually(lambda: passes.keys == [B])


@pytest.mark.parametrize(
    "error", [TemporaryError("later"), TemporaryError("later", 0.001), Conflict("stale"), ValueError("a fault of ours")]
)
async def test_a_failed_pass_is_tried_again(error: Exception) -> None:
    passes = Passes(error, error)
    controller = Controller("tests", passes)
    controller.queue.add(A)
    async with running(controller):
        await eventually(lambda: len(passes.keys) == 3)
        await eventually(lambda: controller.queue.failures(A) == 0)


async def test_a_pass_may_ask_for_another_look() -> None:
    passes = Passes(0.001, None)
    controller = Controller("tests", passes)
    controller.queue.add(A)
    async with running(controller):
        await eventually(lambda: passes.keys == [A, A])


@pytest.mark.fault("K11")
async def test_one_poison_key_does_not_stop_the_others() -> None:
    done: list[Key] = []

    async def reconcile(key: Key) -> None:
        if key == A:
            raise RuntimeError("poison")
        done.append(key)

    controller = Controller("tests", reconcile, workers=1)
    controller.queue.add(A)
    controller.queue.add(B)
    async with running(controller):
        await eventually(lambda: done == [B])


async def test_one_key_is_never_at_work_twice() -> None:
    at_work = 0
    most = 0
    release = asyncio.Event()
    started: Callable[[], bool] = lambda: most > 0  # noqa: E731

    async def reconcile(key: Key) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await release.wait()
        at_work -= 1

    controller = Controller("tests", reconcile, workers=4)
    async with running(controller):
        controller.queue.add(A)
        await eventually(started)
        for _ in range(3):
            controller.queue.add(A)
            await asyncio.sleep(0)
        release.set()
        await eventually(lambda: len(controller.queue) == 0 and at_work == 0)
    assert most == 1


async def test_the_clusters_own_delay_is_kept() -> None:
    passes = Passes(Unavailable("too many requests", retry_after=0.2))
    controller = Controller("tests", passes)
    controller.queue.add(A)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with running(controller):
        await eventually(lambda: len(passes.keys) == 2)
    assert loop.time() - began >= 0.2
    assert (controller.passes, controller.failed) == (2, 1)


async def test_a_pass_that_was_cancelled_from_within_costs_no_worker() -> None:
    passes = Passes(None)
    cancelled = 0

    async def reconcile(key: Key) -> float | None:
        nonlocal cancelled
        if cancelled < 3:
            cancelled += 1
            raise asyncio.CancelledError
        return await passes(key)

    controller = Controller("tests", reconcile, workers=1)
    controller.queue.add(A)
    async with running(controller):
        await eventually(lambda: passes.keys == [A])
    assert controller.failed == 3


async def test_a_pass_that_the_cluster_sends_away_again_and_again_is_told(caplog: pytest.LogCaptureFixture) -> None:
    passes = Passes(*[Unavailable("too many requests", retry_after=0.001)] * 10)
    controller = Controller("tests", passes)
    controller.queue.add(A)
    async with running(controller):
        await eventually(lambda: len(passes.keys) == 11)
    assert "too many requests" in caplog.text


async def test_passes_that_ask_for_another_at_once_stop_nobody_else() -> None:
    passes = Passes(*[0.0] * 1000)
    controller = Controller("test", passes, workers=1)
    controller.queue.add(A)
    turns = 0
    async with running(controller):
        while len(passes.keys) <= 1000:
            turns += 1
            await asyncio.sleep(0)
    assert turns > 500
