"""Slow judgements: few passes wait for them, so that workers remain for other Models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from clusters.base.objects import MODEL, Object
from clusters.embedded.cluster import EmbeddedCluster
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.observer_port import NoObserver
from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import RolloutState, moment, rollout_of
from serving.reconciler.rollouts import MOST_AT_ONCE, NOT_JUDGED, JudgeConcurrency, JudgeResult, RolloutJudge
from serving.types.rollout import MetricRule
from tests.serving.models import model, model_object
from tests.serving.reconciler.conftest import ModelStage, platform
from tests.support.wait import eventually

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING = RolloutState("Progressing", "m-2", "m-1", moment(NOW), moment(NOW), percent=10)
OTHERS = MOST_AT_ONCE + 3


class Silent:
    """An Observer whose Pods do not answer before `answering` is set."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.waiting = 0

    async def read(self, rollout: str, namespace: str, revisions: Collection[str]) -> Mapping[str, Counts]:
        """Nothing, at last."""
        self.waiting += 1
        try:
            await self.answering.wait()
        finally:
            self.waiting -= 1
        return {}

    def forget(self, rollout: str) -> None:
        """Nothing is known."""


async def test_so_many_looks_wait_and_the_next_is_left_out_until_there_is_a_place() -> None:
    silent = Silent()
    looks = JudgeConcurrency(RolloutJudge(silent, NoObserver()))

    def look(number: int, state: RolloutState = RUNNING) -> asyncio.Task[JudgeResult]:
        situation = Situation(rollout=state)
        return asyncio.create_task(looks.judge(model(f"m{number}", rollout={}), situation, NOW))

    waiting = [look(number) for number in range(MOST_AT_ONCE)]
    async with asyncio.timeout(1):
        assert await look(MOST_AT_ONCE) is NOT_JUDGED
        assert await look(MOST_AT_ONCE + 1, replace(RUNNING, phase="Promoted")) is NOT_JUDGED
    assert silent.waiting == MOST_AT_ONCE and not any(task.done() for task in waiting)
    silent.answering.set()
    assert all(looked.judgement is not None for looked in await asyncio.gather(*waiting))
    assert (await look(MOST_AT_ONCE)).judgement is not None


async def test_a_look_that_is_cancelled_gives_its_place_back() -> None:
    silent = Silent()
    looks = JudgeConcurrency(RolloutJudge(silent, NoObserver()), most=1)
    looking = asyncio.create_task(looks.judge(model(rollout={}), Situation(rollout=RUNNING), NOW))
    await eventually(lambda: silent.waiting)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    silent.answering.set()
    assert (await looks.judge(model(rollout={}), Situation(rollout=RUNNING), NOW)).judgement is not None


class Drifting(NoObserver):
    """Metrics that are all far too high."""

    async def values(self, rules: Sequence[MetricRule]) -> Mapping[str, float | None]:
        """A hundred."""
        return {rule.name: 100.0 for rule in rules}


async def test_a_metric_condemns_once_the_step_is_in_force_for_an_interval_and_at_the_second_look_only() -> None:
    judged = model(rollout={"judge": {"metrics": [{"name": "drift", "query": "drift", "max": 1}]}})
    rollouts, state, decisions = RolloutJudge(NoObserver(), Drifting()), replace(RUNNING, seen_at=moment(NOW)), []
    for seconds in (0, 5, 10, 20):
        looked = await rollouts.judge(judged, Situation(rollout=state), NOW + timedelta(seconds=seconds))
        if looked.judgement is not None:
            state = replace(state, judgement=looked.judgement)
            decisions.append((seconds, looked.judgement.verdict.decision))
    assert decisions == [(0, "wait"), (10, "wait"), (20, "fail")]


@pytest.fixture
async def silenced(guarded: EmbeddedCluster) -> AsyncIterator[tuple[ModelStage, Silent]]:
    """A stage whose Pods say nothing to judges."""
    silent = Silent()
    async with platform(guarded, observer=silent) as stage:
        yield stage, silent


async def test_pods_that_say_nothing_keep_no_other_model_waiting(silenced: tuple[ModelStage, Silent]) -> None:
    """More rollouts are judged at the same time than there are workers."""
    stage, silent = silenced
    names = [f"m{number}" for number in range(OTHERS)]
    for name in names:
        await stage.deploy(model_object(name, version="1", rollout={}))
        await stage.comes_up(f"{name}-00001")
        await stage.traffic_is({f"{name}-00001": 100}, name)
    for name in names:
        await stage.edit({"spec": {"storageUri": "file:///models/v2", "version": "2"}}, name)
        await stage.comes_up(f"{name}-00002")

    def runs(obj: Object) -> bool:
        state = rollout_of(obj)
        return state is not None and state.percent > 0

    for name in names:
        await stage.becomes(MODEL, name, runs)
    await eventually(lambda: silent.waiting == MOST_AT_ONCE)
    await stage.deploy(model_object("another", version="1"))
    await stage.comes_up("another-00001")
    await stage.model_is("Unknown", name="another")
