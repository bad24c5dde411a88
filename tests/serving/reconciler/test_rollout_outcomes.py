"""The outbox of a reconciler, also after superseded rollouts, refusals and restarts, and the events at a sink."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from clusters.base.clock import SystemClock
from clusters.base.objects import MODEL_EVENT, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from eventing.outbound.emitter import Emitter
from serving.reconciler.rollout.commands import cause_annotation
from serving.types.model import Cause
from tests.eventing.sink import ListedSink
from tests.serving.models import model_object
from tests.serving.reconciler.mortal import Mortal
from tests.serving.reconciler.test_rollout import BAD, NEW, NEWER, OLD, RolloutStage, Script, stage, stage_on
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

__all__ = ["stage"]
FIRST = ("promoted", OLD)
Told = list[tuple[str, str]]


async def outbox(stage: RolloutStage) -> list[Object]:
    return list((await stage.model())["status"].get("outbox", ()))


async def told(stage: RolloutStage) -> Told:
    return [(entry["type"].split(".")[-2], entry["subject"]) for entry in await outbox(stage)]


async def tells(stage: RolloutStage, *wanted: tuple[str, str]) -> None:
    """Wait until the outbox is so."""

    async def holds() -> bool:
        assert await told(stage) == list(wanted)
        return True

    await eventually(holds)


async def test_a_refused_version_is_told_with_the_judges_verdict(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    stage.script.answers = {NEW: BAD}
    for _ in range(2):
        await stage.later(10)
    await stage.ends("RolledBack")
    await stage.traffic_is({OLD: 100})
    await stage.quiet()
    *_, last = await outbox(stage)
    assert last["data"]["verdict"]["decision"] == "fail"
    await tells(stage, FIRST, ("started", NEW), ("progressed", NEW), ("rolledback", NEW))


async def test_a_superseded_version_is_told_once_and_before_the_next(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    await stage.deploys(3)
    await stage.rollout_is(lambda state: state.candidate == NEWER and state.percent == 10 and bool(state.seen_at))
    await stage.traffic_is({OLD: 90, NEWER: 10})
    await stage.quiet()
    started = [("started", NEW), ("progressed", NEW), ("rolledback", NEW), ("started", NEWER), ("progressed", NEWER)]
    await tells(stage, FIRST, *started)


@pytest.mark.parametrize("writes", [1, 3, 5, 8])
async def test_a_killed_reconciler_tells_nothing_twice_and_leaves_nothing_out(
    guarded: EmbeddedCluster, writes: int
) -> None:
    clock, script = SteppedClock(), Script()
    async with stage_on(guarded, clock, script) as stage:
        await stage.deploy(model_object(version="1", rollout={"steps": [100]}))
        await stage.comes_up(OLD)
        await stage.traffic_is({OLD: 100})
    mortal = Mortal(guarded, writes)
    async with stage_on(guarded, clock, script, mortal) as stage:
        await stage.deploys(2)
        while mortal.left >= 0:
            await stage.ingress_is_ready("magika")
            await stage.later(30)
            await stage.quiet()
    async with stage_on(guarded, clock, script) as stage:
        await stage.comes_up(NEW)
        while not (await stage.rollout_is(lambda _: True)).ended_at:
            await stage.later(61)
            await stage.quiet()
        await stage.traffic_is({NEW: 100})
        await tells(stage, FIRST, ("started", NEW), ("progressed", NEW), ("promoted", NEW))
        entries = await outbox(stage)
    assert all(one["sequence"] < other["sequence"] for one, other in pairwise(entries))
    assert len({entry["id"] for entry in entries}) == len(entries)


async def test_a_sink_hears_of_a_rollout_by_an_event_while_the_reconciler_writes(
    guarded: EmbeddedCluster, stage: RolloutStage
) -> None:
    sink, clock = ListedSink(), SystemClock()
    informers = Informers(guarded, clock)
    emitter = Emitter(guarded, informers, sink=sink, clock=clock, recorder=Recorder(guarded, "tests", clock))
    tasks = [asyncio.create_task(informers.run()), asyncio.create_task(emitter.run())]
    cause = cause_annotation(Cause("event", "42", "/train/magika"))
    await stage.edit({"metadata": {"annotations": cause}, "spec": {"storageUri": "file:///models/v2"}})
    await stage.comes_up(NEW)
    for percent in (10, 50, 100):
        await stage.in_force(percent)
        await stage.later(61)
    await stage.ends("Promoted")
    await stage.traffic_is({NEW: 100})

    await eventually(lambda: len(sink.sent) == 6)
    assert [(one["type"].split(".")[-2], one["data"].get("percent")) for one in sink.sent] == [
        ("promoted", None), ("started", 0), ("progressed", 10), ("progressed", 50), ("progressed", 100),
        ("promoted", 100),
    ]  # fmt: skip
    assert [one.get("causationid") for one in sink.sent] == [None, *["42"] * 5]

    async def is_kept() -> bool:
        kept = (await guarded.list(MODEL_EVENT)).items
        return [one.get("status", {}).get("phase") for one in kept] == ["Applied"] * 6 and not await outbox(stage)

    await eventually(is_kept)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
